// Helpers for tests of the KV cache and its slabs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kuiper/ops/ops.h"

namespace kuiper::test {

constexpr size_t kMegabyte = size_t{1} << 20;

// [S, max_pages] host array with a row stride, as a tensor of the device.
struct Tables {
  Tables(const ComputeDevice& device, int num_seqs, int max_pages, int stride)
      : ids(num_seqs * stride, -1) {
    tensor = Tensor::Dense(ids.data(), DType::kI32, {num_seqs, stride}, device.id());
    tensor = tensor.Cols(0, max_pages);
  }
  int32_t& at(int seq, int i) { return ids[seq * tensor.stride[0] + i]; }

  std::vector<int32_t> ids;
  Tensor tensor;
};

// The largest power of two of pages that fits 256 MB, at least one.
inline int64_t NaivePagesPerSlab(size_t page_bytes) {
  int64_t pages = 1;
  while (2 * pages * page_bytes <= 256 * kMegabyte) pages *= 2;
  return pages;
}

}  // namespace kuiper::test
