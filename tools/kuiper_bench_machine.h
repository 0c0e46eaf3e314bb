// The yardsticks of kuiper_bench: what the machine reaches at best. On the CPU by bursts, which the
// caller puts right before and after each piece of work; on another device once.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "kuiper/base/dtype.h"
#include "kuiper/base/status.h"
#include "kuiper/kernels/cpu/thread_pool.h"
#include "kuiper/ops/device_rates.h"

namespace kuiper::tools {

// A file in memory: on the CPU the bandwidth is that of the pages the kernels read.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  ~MappedFile();

  const char* data() const { return data_; }  // null: it cannot be mapped
  size_t size() const { return size_; }

 private:
  const char* data_ = nullptr;
  size_t size_ = 0;
};

class Machine {
 public:
  // `weights_path` is the largest file of weights.
  static StatusOr<std::unique_ptr<Machine>> Make(Device device, const std::string& weights_path,
                                                 DType weights, int threads);

  // Bytes per second of reading.
  double Bandwidth();
  // FLOP per second; absent on devices where nothing measures it.
  std::optional<double> Peak();
  // Bursts are short and next to the work; otherwise a piece of work should be long.
  bool bursts() const { return pool_ != nullptr; }
  const DeviceRates& rates() const { return rates_; }
  size_t weights_size() const { return weights_.size(); }

 private:
  Machine(const std::string& weights_path, DType weights)
      : weights_(weights_path), type_(weights) {}

  MappedFile weights_;
  DType type_;
  std::unique_ptr<ThreadPool> pool_;  // CPU
  size_t offset_ = 0;
  DeviceRates rates_;  // not on the CPU
};

}  // namespace kuiper::tools
