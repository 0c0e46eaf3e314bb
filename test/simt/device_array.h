// An array in the memory of the emulated device, for tests: kernels take data(), the host reads and
// writes the elements directly.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "emulator/memory.h"

namespace kuiper::simt_test {

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t n)
      : data_(static_cast<T*>(simt::AllocateMemory(n * sizeof(T), simt::MemoryKind::kDevice))),
        size_(n) {}
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) {
    std::copy(values.begin(), values.end(), data_);
  }
  ~DeviceArray() { simt::FreeMemory(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() { return data_; }
  T& operator[](size_t i) { return data_[i]; }
  std::vector<T> ToVector() const { return std::vector<T>(data_, data_ + size_); }

 private:
  T* data_;
  size_t size_;
};

}  // namespace kuiper::simt_test
