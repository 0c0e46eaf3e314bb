// The yardsticks of kuiper_bench: the highest rates of the machine. On the CPU they are measured by
// bursts, which the caller runs right before and after each piece of work; on other devices they
// are measured once.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <vector>

#include "bench/host.h"
#include "bench/report.h"
#include "kuiper/base/buffer.h"
#include "kuiper/base/dtype.h"
#include "kuiper/base/status.h"
#include "kuiper/kernels/cpu/thread_pool.h"
#include "kuiper/ops/device_rates.h"

namespace kuiper::tools {

class Machine {
 public:
  // For work that reads `bytes` of memory and multiplies weights of this type. At most 512 MB are
  // used for the measurement.
  static StatusOr<std::unique_ptr<Machine>> Make(Device device, DType weights, size_t bytes,
                                                 int threads);

  // Returns the bytes per second of reading; on the CPU from huge pages, which weights can use too.
  double Bandwidth();
  // Returns FLOP per second; absent if the device has no measurement.
  std::optional<double> Peak();
  // Returns the joules since a point in the past; absent if no board measures its power.
  std::optional<double> Joules();
  void MeasurePower(std::unique_ptr<PowerMeter> power) { power_ = std::move(power); }
  // True if bursts are short and next to the work; otherwise each piece of work should be long.
  bool bursts() const { return pool_ != nullptr; }
  const DeviceRates& rates() const { return rates_; }
  // Returns the yardsticks, with the range over all bursts so far.
  Json Describe() const;

 private:
  explicit Machine(DType weights) : type_(weights) {}

  DType type_;
  std::unique_ptr<cpu::ThreadPool> pool_;   // CPU
  Buffer memory_;                           // CPU: memory that the bursts read
  size_t offset_ = 0;                       // where the next burst begins
  double in_huge_pages_ = 0;                // CPU: share of memory_, from 0 to 1
  std::vector<double> bandwidths_, peaks_;  // CPU: results of all bursts
  std::unique_ptr<PowerMeter> power_;
  DeviceRates rates_;  // not on the CPU
};

}  // namespace kuiper::tools
