#include <string>

#include "emulator/half.h"
#include "emulator/ptx_context.h"

// Operations of all lanes of a warp: shuffles, votes, ldmatrix, mma. Layouts follow the PTX ISA.

namespace kuiper::simt::ptx {
namespace {

enum class Shuffle { kBfly, kIdx, kUp, kDown };

// shfl.sync d(|p), a, b, c, mask: d is the value of the lane selected by b and c; p is set if
// it is in range.
template <Shuffle kMode, bool kWithPredicate>
void Shfl(Context& c, const Instruction& i) {
  const uint32_t *a = c.At<uint32_t>(i.s[0]), *b = c.At<uint32_t>(i.s[1]);
  const uint32_t* const clamps = c.At<uint32_t>(i.s[2]);
  uint32_t values[kLanes] = {}, in_range = 0;
  for (int l = 0; l < kLanes; ++l) {
    if ((c.mask >> l & 1) == 0) continue;
    const int segment = static_cast<int>(clamps[l] >> 8 & 31), by = static_cast<int>(b[l] & 31);
    const int clamp = static_cast<int>(clamps[l] & 31);
    const int first = l & segment, last = first | (clamp & ~segment);
    int from = 0;
    if (kMode == Shuffle::kBfly) from = l ^ by;
    if (kMode == Shuffle::kIdx) from = first | (by & ~segment);
    if (kMode == Shuffle::kUp) from = l - by;
    if (kMode == Shuffle::kDown) from = l + by;
    const bool ok = kMode == Shuffle::kUp ? from >= last : from <= last;
    if (!ok) from = l;
    if ((c.mask >> from & 1) == 0) Fail(c, i, "shuffle from a lane that does not take part", l);
    values[l] = a[from];
    in_range |= static_cast<uint32_t>(ok) << l;
  }
  Store<uint32_t>(c, i.d[0], [&](int l) { return values[l]; });
  if (kWithPredicate) StorePredicate(c, i.d[1], in_range);
}

template <Shuffle kMode>
void AddShuffle(FormTable& table, const char* name) {
  table[std::string("shfl.sync.") + name + ".b32"] = {
      {"W,w,w,w,w", Shfl<kMode, false>, Kind::kWarp, 3},
      {"WP,w,w,w,w", Shfl<kMode, true>, Kind::kWarp, 3}};
}

void Ballot(Context& c, const Instruction& i) {
  const uint32_t bits = *c.At<uint32_t>(i.s[0]) & c.mask;
  Store<uint32_t>(c, i.d[0], [&](int) { return bits; });
}

void Meet(Context&, const Instruction&) {}

// Lane l supplies the address of row l % 8 of matrix l / 8. Register n of lane l receives elements
// 2 * (l % 4) and the next one of row (transposed: column) l / 4 of matrix n.
template <bool kTransposed>
void LoadMatrices(Context& c, const Instruction& i) {
  const uint32_t* const addresses = c.At<uint32_t>(i.s[0]);
  uint16_t rows[kLanes][8];
  uint64_t at[kLanes];
  for (int l = 0; l < kLanes; ++l) {
    at[l] = addresses[l] + static_cast<uint64_t>(i.displacement[0]);
    std::memcpy(rows[l], SharedBytes(c, i, at[l], 16, l), 16);
  }
  if (c.traffic != nullptr) CountShared(at, kAllLanes, 16, TrafficOf(c, i));
  for (int n = 0; n < 4; ++n) {
    uint32_t* const d = c.At<uint32_t>(i.d[n]);
    for (int l = 0; l < kLanes; ++l) {
      const int down = l / 4, across = 2 * (l % 4);
      const uint16_t low = kTransposed ? rows[8 * n + across][down] : rows[8 * n + down][across];
      const uint16_t high =
          kTransposed ? rows[8 * n + across + 1][down] : rows[8 * n + down][across + 1];
      d[l] = low | static_cast<uint32_t>(high) << 16;
    }
  }
}

template <typename Format>
float Element(uint32_t packed, int n) {
  return Format::Decode(static_cast<uint16_t>(packed >> (16 * n)));
}

// d [16, 8] = a [16, 16] * b [16, 8] + c, sums in FP32 over ascending k. Let g = lane / 4 (group)
// and p = 2 * (lane % 4) (pair). a's registers are rows g, g + 8, g, g + 8 at columns p, p, p + 8,
// p + 8. b's registers are rows p, p + 8 of column g. c's and d's registers are row g at columns p,
// p + 1, then row g + 8.
template <typename Format>
void Mma(Context& c, const Instruction& i) {
  float a[16][16], b[16][8], d[16][8];
  for (int r = 0; r < 4; ++r) {
    const uint32_t* const from = c.At<uint32_t>(i.s[r]);
    for (int l = 0; l < kLanes; ++l)
      for (int n = 0; n < 2; ++n)
        a[l / 4 + 8 * (r % 2)][2 * (l % 4) + 8 * (r / 2) + n] = Element<Format>(from[l], n);
  }
  for (int r = 0; r < 2; ++r) {
    const uint32_t* const from = c.At<uint32_t>(i.s[4 + r]);
    for (int l = 0; l < kLanes; ++l)
      for (int n = 0; n < 2; ++n) b[2 * (l % 4) + 8 * r + n][l / 4] = Element<Format>(from[l], n);
  }
  for (int r = 0; r < 4; ++r) {
    const float* const from = c.At<float>(i.s[6 + r]);
    for (int l = 0; l < kLanes; ++l) d[l / 4 + 8 * (r / 2)][2 * (l % 4) + r % 2] = from[l];
  }
  for (int m = 0; m < 16; ++m)
    for (int k = 0; k < 16; ++k)
      for (int n = 0; n < 8; ++n) d[m][n] += a[m][k] * b[k][n];
  for (int r = 0; r < 4; ++r) {
    float* const to = c.At<float>(i.d[r]);
    for (int l = 0; l < kLanes; ++l) to[l] = d[l / 4 + 8 * (r / 2)][2 * (l % 4) + r % 2];
  }
}

}  // namespace

void AddWarpOperations(FormTable& table) {
  AddShuffle<Shuffle::kBfly>(table, "bfly");
  AddShuffle<Shuffle::kIdx>(table, "idx");
  AddShuffle<Shuffle::kUp>(table, "up");
  AddShuffle<Shuffle::kDown>(table, "down");
  table["vote.sync.ballot.b32"] = {{"W,p,w", Ballot, Kind::kWarp, 1}};
  table["bar.warp.sync"] = {{"w", Meet, Kind::kWarp, 0}};
  const std::string load = "ldmatrix.sync.aligned.m8n8.x4", from = ".shared.b16";
  table[load + from] = {{"WWWW,a", LoadMatrices<false>, Kind::kWarp}};
  table[load + ".trans" + from] = {{"WWWW,a", LoadMatrices<true>, Kind::kWarp}};
  const std::string mma = "mma.sync.aligned.m16n8k16.row.col.f32.", pattern = "WWWW,wwww,ww,wwww";
  table[mma + "f16.f16.f32"] = {{pattern, Mma<HalfFormat>, Kind::kWarp}};
  table[mma + "bf16.bf16.f32"] = {{pattern, Mma<BFloat16Format>, Kind::kWarp}};
}

const std::vector<Form>& FormsOf(const std::string& opcode) {
  static const FormTable table = [] {
    FormTable t;
    AddArithmetic(t);
    AddConversions(t);
    AddMemory(t);
    AddWarpOperations(t);
    return t;
  }();
  static const std::vector<Form> none;
  const auto it = table.find(opcode);
  return it == table.end() ? none : it->second;
}

}  // namespace kuiper::simt::ptx
