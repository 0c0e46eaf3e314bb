#include "kuiper/ops/compute_device.h"

#include "kuiper/base/clock.h"

namespace kuiper {
namespace {

class HostTimer : public WorkTimer {
 public:
  void Begin() override { begin_ = Clock::now(); }
  void End() override { milliseconds_ += MillisecondsSince(begin_); }
  double Milliseconds() override { return milliseconds_; }

 private:
  Clock::time_point begin_;
  double milliseconds_ = 0;
};

}  // namespace

std::unique_ptr<WorkTimer> ComputeDevice::MakeTimer() {
  return std::make_unique<HostTimer>();
}

}  // namespace kuiper
