#include "tools/kuiper_bench_machine.h"

#include <algorithm>
#include <cstring>

#include "kuiper/kernels/cpu/cpu_peaks.h"
#include "kuiper/kernels/cpu/host_memory.h"

namespace kuiper::tools {

StatusOr<std::unique_ptr<Machine>> Machine::Make(Device device, DType weights, size_t bytes,
                                                 int threads) {
  std::unique_ptr<Machine> machine(new Machine(weights));
  if (device.type == DeviceType::kCPU) {
    KU_ASSIGN_OR_RETURN(machine->memory_, cpu::AllocatePages(std::min(bytes, size_t{512} << 20)));
    std::memset(machine->memory_.data(), 1, machine->memory_.bytes());
    machine->pool_ = std::make_unique<cpu::ThreadPool>(threads);
    return machine;
  }
  // Far more than a GPU's L2; the emulated device is slow, and its figures mean nothing.
  const size_t read = device.type == DeviceType::kSimt ? size_t{1} << 16 : size_t{1} << 30;
  KU_ASSIGN_OR_RETURN(machine->rates_, MeasureDeviceRates(device, read, 10));
  return machine;
}

double Machine::Bandwidth() {
  if (pool_ == nullptr) return rates_.read;
  // A different part each time, so that no cache has it.
  const size_t bytes = std::min<size_t>(memory_.bytes(), size_t{128} << 20);
  if (offset_ + bytes > memory_.bytes()) offset_ = 0;
  const char* data = static_cast<const char*>(memory_.data()) + offset_;
  offset_ += bytes;
  return cpu::MeasureReadBandwidth(*pool_, data, bytes);
}

std::optional<double> Machine::Peak() {
  if (pool_ == nullptr) return std::nullopt;
  return cpu::MeasurePeakFlops(*pool_, WeightFormat::Dense(type_), 0.01);
}

}  // namespace kuiper::tools
