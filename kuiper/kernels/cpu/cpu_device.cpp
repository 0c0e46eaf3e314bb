#include "kuiper/kernels/cpu/cpu_device.h"

#include <cstring>

#include "kuiper/base/check.h"
#include "kuiper/kernels/cpu/host_memory.h"

namespace kuiper::cpu {
namespace {

class RecordedOps : public CapturedGraph {
 public:
  explicit RecordedOps(std::vector<std::function<void()>> ops) : ops_(std::move(ops)) {}
  void Replay() override {
    for (const auto& op : ops_) op();
  }

 private:
  std::vector<std::function<void()>> ops_;
};

}  // namespace

StatusOr<Buffer> CpuDevice::Allocate(size_t bytes) {
  return AllocatePages(bytes);
}

StatusOr<Buffer> CpuDevice::AllocateWhole(size_t bytes) {
  return AllocateHugePages(bytes);
}

size_t CpuDevice::FreeBytes() const {
  return FreeMemory();
}

void CpuDevice::Upload(Tensor dst, Tensor src) {
  KU_CHECK(recording_ == nullptr, "a recorded step consists of ops only");
  KU_CHECK(dst.bytes() == src.bytes() && dst.is_dense() && src.is_dense());
  if (dst.numel() > 0) std::memcpy(dst.data, src.data, dst.bytes());
}

StatusOr<std::unique_ptr<CapturedGraph>> CpuDevice::Capture(const std::function<void()>& body) {
  KU_CHECK(recording_ == nullptr, "Capture inside Capture");
  std::vector<std::function<void()>> ops;
  recording_ = &ops;
  body();
  recording_ = nullptr;
  return std::unique_ptr<CapturedGraph>(new RecordedOps(std::move(ops)));
}

}  // namespace kuiper::cpu
