// Buffer: the only owner of memory. Move-only. It is freed with the function it was created with,
// so this class does not depend on any device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "kuiper/base/tensor.h"

namespace kuiper {

// Bytes on a device and in host memory.
struct MemorySize {
  size_t device = 0, host = 0;
};

class Buffer {
 public:
  using FreeFn = void (*)(void* data, size_t bytes);

  Buffer() = default;
  Buffer(void* data, size_t bytes, Device device, FreeFn free_fn)
      : data_(data), bytes_(bytes), device_(device), free_fn_(free_fn) {}
  Buffer(Buffer&& other) noexcept { Swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer moved(std::move(other));
    Swap(moved);
    return *this;
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() {
    if (data_ != nullptr && free_fn_ != nullptr) free_fn_(data_, bytes_);
  }

  void* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  bool empty() const { return data_ == nullptr; }

  // Returns a dense view of part of the buffer; CHECKs that it fits.
  Tensor As(DType dtype, std::initializer_list<int64_t> shape, size_t byte_offset = 0) const {
    Tensor t = Tensor::Dense(static_cast<char*>(data_) + byte_offset, dtype, shape, device_);
    KU_CHECK(byte_offset + static_cast<size_t>(t.bytes()) <= bytes_, "view exceeds its buffer");
    return t;
  }

 private:
  void Swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(device_, other.device_);
    std::swap(free_fn_, other.free_fn_);
  }

  void* data_ = nullptr;
  size_t bytes_ = 0;
  Device device_;
  FreeFn free_fn_ = nullptr;
};

}  // namespace kuiper
