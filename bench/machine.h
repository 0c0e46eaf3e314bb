// The yardsticks of kuiper_bench: what the machine reaches at best. On the CPU by bursts, which the
// caller puts right before and after each piece of work; on another device once.
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
  // For work that reads `bytes` of memory (more than 512 MB are not measured differently) and
  // multiplies weights of this type.
  static StatusOr<std::unique_ptr<Machine>> Make(Device device, DType weights, size_t bytes,
                                                 int threads);

  // Bytes per second of reading; on the CPU from huge pages, as weights can lie in.
  double Bandwidth();
  // FLOP per second; absent on devices where nothing measures it.
  std::optional<double> Peak();
  // Joules since a point in the past; absent where no board measures its power.
  std::optional<double> Joules();
  void MeasurePower(std::unique_ptr<PowerMeter> power) { power_ = std::move(power); }
  // Bursts are short and next to the work; otherwise a piece of work should be long.
  bool bursts() const { return pool_ != nullptr; }
  const DeviceRates& rates() const { return rates_; }
  // The yardsticks, with the range over all bursts so far.
  Json Describe() const;

 private:
  explicit Machine(DType weights) : type_(weights) {}

  DType type_;
  std::unique_ptr<cpu::ThreadPool> pool_;   // CPU
  Buffer memory_;                           // CPU: what the bursts read
  size_t offset_ = 0;                       // of the next burst
  double in_huge_pages_ = 0;                // CPU: a part of 1 of memory_
  std::vector<double> bandwidths_, peaks_;  // CPU: of all bursts
  std::unique_ptr<PowerMeter> power_;
  DeviceRates rates_;  // not on the CPU
};

}  // namespace kuiper::tools
