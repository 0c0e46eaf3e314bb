// Shared by tests of the wrappers: arrays in the memory of a device, and the GPU if there is one.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "test/simt/wrappers.h"

namespace kuiper::simt_test {

template <typename T>
class Array {
 public:
  Array(const Wrappers& w, std::vector<T> values)
      : w_(w), values_(std::move(values)), data_(w.allocate(values_.size() * sizeof(T))) {
    w_.upload(data_, values_.data(), values_.size() * sizeof(T));
  }
  ~Array() { w_.release(data_); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  T* device() const { return static_cast<T*>(data_); }
  const std::vector<T>& host() {
    w_.download(values_.data(), data_, values_.size() * sizeof(T));
    return values_;
  }

 private:
  const Wrappers& w_;
  std::vector<T> values_;
  void* data_;
};

// Returns nothing if the program was built without nvcc or the machine has no GPU.
inline std::optional<Wrappers> GpuWrappers() {
#if defined(KUIPER_WITH_CUDA)
  const Wrappers w = cuda::GetWrappers();
  void* const probe = w.allocate(1);
  if (probe == nullptr) return std::nullopt;
  w.release(probe);
  return w;
#else
  return std::nullopt;
#endif
}

}  // namespace kuiper::simt_test
