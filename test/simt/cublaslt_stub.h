// cuBLASLt without a GPU. It uses NVIDIA's own descriptors, layouts and preferences, and plain
// loops on the emulated device in place of its algorithms. A program that links cublaslt_stub.cpp
// calls this stub instead of the library. The stub reads its arguments back. It fails the running
// test if they are not y = x W^T of row-major matrices with FP32 sums, or describe memory wrongly.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "kuiper/base/dtype.h"

namespace kuiper::test {

// A product as described to the library. Strides are elements from row to row.
struct StubProduct {
  int64_t m = 0, n = 0, k = 0;
  int64_t x_stride = 0, weight_stride = 0, out_stride = 0;
  DType type = DType::kF32, out_type = DType::kF32;
  bool add = false;  // known only when it runs
  auto operator<=>(const StubProduct&) const = default;
};

// An algorithm: the products it supports, and how it computes.
struct StubAlgorithm {
  using Predicate = std::function<bool(const StubProduct&)>;

  bool fits = true;     // state that the heuristic returns
  int32_t split_k = 1;  // blocks that share a sum
  // Bytes of workspace that it requests and writes.
  std::function<size_t(const StubProduct&)> workspace = [](const StubProduct&) { return 4096; };
  Predicate passes_check = [](const StubProduct&) { return true; };
  Predicate runs = [](const StubProduct&) { return true; };
  // Number of neighbouring products that form one partial sum.
  std::function<int64_t(const StubProduct&)> piece = [](const StubProduct&) { return 32; };
  int milliseconds = 0;  // waiting time in each product
};

struct CublasLtStub {
  bool works = true;     // a handle can be created
  bool proposes = true;  // the heuristic knows the shape
  std::vector<StubAlgorithm> algorithms = {StubAlgorithm{}};
  std::vector<std::pair<int, StubProduct>> ran;  // algorithms and products, in order
  int num_checked = 0;
  int num_handles = 0;  // handles that exist
};
// The stub of this program. By default the algorithms that must not be chosen are proposed first.
CublasLtStub& TheCublasLtStub();

// Appends work to a stream of the emulated device.
void QueueOnStream(void* stream, std::function<void()> work);

}  // namespace kuiper::test
