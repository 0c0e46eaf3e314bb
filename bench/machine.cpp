#include "bench/machine.h"

#include <algorithm>
#include <cstring>

#include "kuiper/base/text.h"
#include "kuiper/kernels/cpu/cpu_peaks.h"
#include "kuiper/kernels/cpu/host_memory.h"

namespace kuiper::tools {
namespace {

// Returns the kilobytes of this process's memory in huge pages.
size_t HugeKilobytes() {
  return ReadKey("/proc/self/smaps_rollup", "AnonHugePages:").value_or(0);
}

// Medians, quartiles and the whole range, in units of 10^9 per second.
Json RangeOf(const std::vector<double>& rates) {
  const Spread spread = SpreadOf(rates).Times(1e-9);
  const auto [least, most] = std::minmax_element(rates.begin(), rates.end());
  return {{"median", spread.median}, {"low", spread.low},   {"high", spread.high},
          {"least", *least / 1e9},   {"most", *most / 1e9}, {"bursts", spread.count}};
}

}  // namespace

StatusOr<std::unique_ptr<Machine>> Machine::Make(Device device, DType weights, size_t bytes,
                                                 int threads) {
  std::unique_ptr<Machine> machine(new Machine(weights));
  if (device.type == DeviceType::kCPU) {
    KU_ASSIGN_OR_RETURN(machine->memory_,
                        cpu::AllocateHugePages(std::min(bytes, size_t{512} << 20)));
    const size_t before = HugeKilobytes();
    std::memset(machine->memory_.data(), 1, machine->memory_.bytes());
    machine->in_huge_pages_ = std::min(1.0, 1024.0 * static_cast<double>(HugeKilobytes() - before) /
                                                static_cast<double>(machine->memory_.bytes()));
    machine->pool_ = std::make_unique<cpu::ThreadPool>(threads);
    return machine;
  }
  // Far larger than a GPU's L2 cache. The emulated device is slow, and its figures mean nothing.
  const size_t read = device.type == DeviceType::kSimt ? size_t{1} << 16 : size_t{1} << 30;
  KU_ASSIGN_OR_RETURN(machine->rates_, MeasureDeviceRates(device, read, 10));
  return machine;
}

double Machine::Bandwidth() {
  if (pool_ == nullptr) return rates_.read;
  // Reads a different part each time, so that it is not in a cache.
  const size_t bytes = std::min<size_t>(memory_.bytes(), size_t{128} << 20);
  if (offset_ + bytes > memory_.bytes()) offset_ = 0;
  const char* data = static_cast<const char*>(memory_.data()) + offset_;
  offset_ += bytes;
  bandwidths_.push_back(cpu::MeasureReadBandwidth(*pool_, data, bytes));
  return bandwidths_.back();
}

std::optional<double> Machine::Peak() {
  if (pool_ == nullptr) return std::nullopt;
  peaks_.push_back(cpu::MeasurePeakFlops(*pool_, WeightFormat::Dense(type_), 0.01));
  return peaks_.back();
}

std::optional<double> Machine::Joules() {
  if (power_ == nullptr) return std::nullopt;
  return power_->Joules();
}

Json Machine::Describe() const {
  Json json = Json::object();
  if (!bandwidths_.empty()) {
    json["read_gbps"] = RangeOf(bandwidths_);
    json["in_huge_pages"] = in_huge_pages_;
  }
  if (pool_ == nullptr) {
    json["read_gbps"] = rates_.read / 1e9;
    json["copy_gbps"] = rates_.copy / 1e9;  // bytes read plus bytes written
  }
  if (!peaks_.empty()) json["peak_gflops"] = RangeOf(peaks_);
  if (power_ != nullptr) json["power_rails"] = power_->rails();
  return json;
}

}  // namespace kuiper::tools
