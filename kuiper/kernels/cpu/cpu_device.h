// The host as a compute device: plain memory, and ops that have finished when they return. Ops run
// through Do, so that a captured graph contains them. Owned by CpuOps; independent of the ops.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/ops/compute_device.h"

namespace kuiper::cpu {

class CpuDevice final : public ComputeDevice {
 public:
  explicit CpuDevice(std::string description) : description_(std::move(description)) {}

  Device id() const override { return {}; }
  std::string Description() const override { return description_; }
  DeviceTraits traits() const override {
    return {.reads_host_memory = true, .unified_memory = true};
  }
  StatusOr<Buffer> Allocate(size_t bytes) override;
  StatusOr<Buffer> AllocateWhole(size_t bytes) override;
  StatusOr<Buffer> AllocatePinned(size_t bytes) override { return Allocate(bytes); }
  size_t FreeBytes() const override;
  void Upload(Tensor dst, Tensor src) override;
  void Download(Tensor dst, Tensor src) override { Upload(dst, src); }
  void Sync() override {}
  int64_t Mark() override { return 0; }
  void WaitFor(int64_t) override {}
  StatusOr<std::unique_ptr<CapturedGraph>> Capture(const std::function<void()>& body) override;

  // Runs `op` and, during Capture, also records it. `op` holds copies of its arguments: a replay
  // uses the captured host scalars but reads memory again, as a CUDA graph does.
  template <typename F>
  void Do(F op) {
    if (recording_ != nullptr) recording_->push_back(op);
    op();
  }
  bool is_recording() const { return recording_ != nullptr; }

 private:
  std::string description_;
  std::vector<std::function<void()>>* recording_ = nullptr;
};

}  // namespace kuiper::cpu
