// The warp-wide matrix instructions: ldmatrix and mma.m16n8k16 with FP32 accumulation. The
// assignment of elements to lanes follows the PTX ISA ("Matrix fragments for mma.m16n8k16",
// "ldmatrix"). kernels/cuda/mma.cuh wraps them.
#pragma once

#include <cstdint>
#include <cstring>

#include "emulator/half.h"
#include "emulator/intrinsics.h"
#include "emulator/machine.h"
#include "emulator/sanitizer.h"
#include "emulator/shared_memory.h"

namespace kuiper::simt {

struct LoadMatrixArg {
  const void* row;
  uint32_t r[4];
};

// Lane l supplies the address of row l % 8 of matrix l / 8 (8x8 elements of 16 bits). Register i of
// lane l receives elements 2 * (l % 4) and the next one of row l / 4 of matrix i. If transposed,
// these are elements of column l / 4.
template <bool kTransposed>
void LoadMatrix(uint32_t (&r)[4], const void* row, const Site& site) {
  CheckSharedAddress(row, 16, site);
  NoteRead(row, 16);
  LoadMatrixArg arg{row, {}};
  WarpCollective(
      kFullMask, site, false,
      [](void* const* args) {
        for (int l = 0; l < 32; ++l) {
          auto* to = static_cast<LoadMatrixArg*>(args[l]);
          if (to == nullptr) continue;
          for (int i = 0; i < 4; ++i) {
            uint16_t e[2];
            for (int j = 0; j < 2; ++j) {
              const int across = 2 * (l % 4) + j, down = l / 4;
              const int row_lane = 8 * i + (kTransposed ? across : down);
              const auto* from = static_cast<const LoadMatrixArg*>(args[row_lane]);
              if (from == nullptr) Fail("ldmatrix needs all 32 lanes");
              std::memcpy(&e[j],
                          static_cast<const char*>(from->row) + 2 * (kTransposed ? down : across),
                          sizeof(e[j]));
            }
            to->r[i] = e[0] | static_cast<uint32_t>(e[1]) << 16;
          }
        }
      },
      &arg);
  for (int i = 0; i < 4; ++i) r[i] = arg.r[i];
}

struct MmaArg {
  float* d;
  const uint32_t *a, *b;
};

template <typename Format>
float PackedElement(uint32_t packed, int i) {
  return Format::Decode(static_cast<uint16_t>(packed >> (16 * i)));
}

// d [16, 8] += a [16, 16] * b [16, 8]; products are exact, sums run over ascending k in FP32.
template <typename Format>
void Mma16x8x16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2], const Site& site) {
  MmaArg arg{d, a, b};
  WarpCollective(
      kFullMask, site, false,
      [](void* const* args) {
        float a_tile[16][16], b_tile[16][8], d_tile[16][8];
        for (int l = 0; l < 32; ++l) {
          const auto* from = static_cast<const MmaArg*>(args[l]);
          if (from == nullptr) Fail("mma needs all 32 lanes");
          const int group = l / 4, pair = 2 * (l % 4);
          for (int j = 0; j < 2; ++j) {
            for (int r = 0; r < 4; ++r)
              a_tile[group + 8 * (r % 2)][pair + 8 * (r / 2) + j] =
                  PackedElement<Format>(from->a[r], j);
            for (int r = 0; r < 2; ++r)
              b_tile[pair + 8 * r + j][group] = PackedElement<Format>(from->b[r], j);
            for (int r = 0; r < 2; ++r) d_tile[group + 8 * r][pair + j] = from->d[2 * r + j];
          }
        }
        for (int m = 0; m < 16; ++m)
          for (int k = 0; k < 16; ++k)
            for (int n = 0; n < 8; ++n) d_tile[m][n] += a_tile[m][k] * b_tile[k][n];
        for (int l = 0; l < 32; ++l) {
          auto* to = static_cast<MmaArg*>(args[l]);
          for (int r = 0; r < 4; ++r) to->d[r] = d_tile[l / 4 + 8 * (r / 2)][2 * (l % 4) + r % 2];
        }
      },
      &arg);
}

}  // namespace kuiper::simt
