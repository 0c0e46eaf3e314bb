#include "tools/kuiper_bench_machine.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "kuiper/kernels/cpu/cpu_peaks.h"

namespace kuiper::tools {

MappedFile::MappedFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat info = {};
  if (fd >= 0 && fstat(fd, &info) == 0 && info.st_size > 0) {
    size_ = static_cast<size_t>(info.st_size);
    void* data = mmap(nullptr, size_, PROT_READ, MAP_SHARED, fd, 0);
    data_ = data == MAP_FAILED ? nullptr : static_cast<const char*>(data);
  }
  if (fd >= 0) close(fd);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<char*>(data_), size_);
}

StatusOr<std::unique_ptr<Machine>> Machine::Make(Device device, const std::string& weights_path,
                                                 DType weights, int threads) {
  std::unique_ptr<Machine> machine(new Machine(weights_path, weights));
  if (machine->weights_.data() == nullptr) {
    return Status(StatusCode::kModel, "cannot map " + weights_path + " to measure the bandwidth");
  }
  if (device.type == DeviceType::kCPU) {
    madvise(const_cast<char*>(machine->weights_.data()), machine->weights_.size(),
            MADV_POPULATE_READ);  // kernels before 5.14 refuse: then the first burst is slow
    machine->pool_ = std::make_unique<ThreadPool>(threads);
    return machine;
  }
  // Far more than a GPU's L2; the emulated device is slow, and its figures mean nothing.
  const size_t bytes = device.type == DeviceType::kSimt ? size_t{1} << 16 : size_t{1} << 30;
  KU_ASSIGN_OR_RETURN(machine->rates_, MeasureDeviceRates(device, bytes, 10));
  return machine;
}

double Machine::Bandwidth() {
  if (pool_ == nullptr) return rates_.read;
  // A different part each time, so that no cache has it.
  const size_t bytes = std::min<size_t>(weights_.size(), size_t{128} << 20);
  if (offset_ + bytes > weights_.size()) offset_ = 0;
  const char* data = weights_.data() + offset_;
  offset_ += bytes;
  return MeasureReadBandwidth(*pool_, data, bytes);
}

std::optional<double> Machine::Peak() {
  if (pool_ == nullptr) return std::nullopt;
  return MeasurePeakFlops(*pool_, type_, 0.01);
}

}  // namespace kuiper::tools
