// A device for storage tests that behaves like a GPU in two ways that a CPU does not. Its memory is
// limited, and uploads happen as late as the contract allows, in Sync. It runs no kernels.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/ops/compute_device.h"

namespace kuiper::test {

class LateDevice final : public ComputeDevice {
 public:
  struct Allocation {
    char* data;
    size_t bytes;
  };

  explicit LateDevice(size_t capacity = size_t{1} << 40) : capacity_(capacity) {}
  ~LateDevice() override { EXPECT_TRUE(pending_.empty()) << "a source died before Sync"; }
  void set_capacity(size_t capacity) { capacity_ = capacity; }
  // Allocations in the order in which they were made.
  const std::vector<Allocation>& allocations() const { return allocations_; }

  Device id() const override { return {DeviceType::kSimt, 0}; }
  std::string Description() const override { return "late"; }
  StatusOr<Buffer> Allocate(size_t bytes) override {
    size_t used = 0;
    for (const Allocation& a : allocations_) used += a.bytes;
    if (used + bytes > capacity_) {
      return Status(StatusCode::kResourceExhausted, "the device is full", "use less");
    }
    char* data = static_cast<char*>(std::malloc(bytes));
    allocations_.push_back({data, bytes});
    return Buffer(data, bytes, id(), [](void* p, size_t) { std::free(p); });
  }
  StatusOr<Buffer> AllocatePinned(size_t bytes) override { return Allocate(bytes); }
  size_t FreeBytes() const override { return capacity_; }
  DeviceTraits traits() const override { return {.is_asynchronous = true}; }
  void Upload(Tensor dst, Tensor src) override {
    EXPECT_EQ(dst.bytes(), src.bytes());
    const char* bytes = static_cast<const char*>(src.data);
    pending_.push_back({dst, src, std::string(bytes, src.bytes())});
  }
  void Download(Tensor, Tensor) override { FAIL() << "storage downloads nothing"; }
  void Sync() override {
    for (const Copy& copy : pending_) {
      EXPECT_EQ(std::memcmp(copy.src.data, copy.expected.data(), copy.expected.size()), 0)
          << "the source of an upload changed before Sync";
      std::memcpy(copy.dst.data, copy.src.data, copy.expected.size());
    }
    pending_.clear();
  }
  int64_t Mark() override { return 0; }
  void WaitFor(int64_t) override { Sync(); }
  StatusOr<std::unique_ptr<CapturedGraph>> Capture(const std::function<void()>&) override {
    return Status(StatusCode::kUnavailable, "no kernels");
  }

 private:
  struct Copy {
    Tensor dst, src;
    std::string expected;
  };

  size_t capacity_;
  std::vector<Allocation> allocations_;
  std::vector<Copy> pending_;
};

}  // namespace kuiper::test
