// cuBLASLt without a GPU: NVIDIA's own descriptors, layouts and preferences, and in place of its
// algorithms plain loops on the emulated device. A program that links cublaslt_stub.cpp calls these
// where it would call the library's. The stub reads back what it is given and fails the running
// test when that is not y = x W^T of row-major matrices with FP32 sums, or lies about memory.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "kuiper/base/dtype.h"

namespace kuiper::test {

// What the library was told of a product. Strides are elements from row to row.
struct StubProduct {
  int64_t m = 0, n = 0, k = 0;
  int64_t x_stride = 0, weight_stride = 0, out_stride = 0;
  DType type = DType::kF32, out_type = DType::kF32;
  bool add = false;  // known when it runs
  auto operator<=>(const StubProduct&) const = default;
};

// An algorithm: what it takes, and how it computes.
struct StubAlgorithm {
  using Predicate = std::function<bool(const StubProduct&)>;

  bool fits = true;     // the state that the heuristic gives
  int32_t split_k = 1;  // blocks that share a sum
  // Bytes that it asks for and writes.
  std::function<size_t(const StubProduct&)> workspace = [](const StubProduct&) { return 4096; };
  Predicate passes_check = [](const StubProduct&) { return true; };
  Predicate runs = [](const StubProduct&) { return true; };
  // A sum is made of sums of so many products of neighbours.
  std::function<int64_t(const StubProduct&)> piece = [](const StubProduct&) { return 32; };
  int milliseconds = 0;  // of waiting in each product
};

struct CublasLtStub {
  bool works = true;     // whether a handle can be made
  bool proposes = true;  // whether the heuristic knows the shape
  std::vector<StubAlgorithm> algorithms = {StubAlgorithm{}};
  std::vector<std::pair<int, StubProduct>> ran;  // algorithms and products, in order
  int num_checked = 0;
  int num_handles = 0;  // that live
};
// The one that the program has. At first it proposes what must not be taken before what may.
CublasLtStub& TheCublasLtStub();

// Puts work behind what a stream of the emulated device has.
void QueueOnStream(void* stream, std::function<void()> work);

}  // namespace kuiper::test
