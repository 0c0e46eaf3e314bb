// The only file that depends on which backends were built.
#include "kuiper/kernels/cpu/cpu_ops.h"
#include "kuiper/kernels/cuda/make_cuda_ops.h"
#include "kuiper/ops/device_rates.h"
#include "kuiper/ops/ops.h"

namespace kuiper {
namespace {

Status NotBuilt(Device device) {
  const bool simt = device.type == DeviceType::kSimt;
  return Status(
      StatusCode::kUnavailable,
      simt ? "no simt device found (this build has no CUDA kernels to emulate)"
           : "no CUDA device found: this build has no CUDA (cmake " + Param("preset") + " cuda)",
      Param("device") + " cpu runs without one");
}

}  // namespace

StatusOr<std::unique_ptr<Ops>> MakeOps(Device device, const OpsOptions& options) {
  if (!options.cpu_target.empty() && device.type != DeviceType::kCPU) {
    return Status(StatusCode::kInvalidArgument,
                  Param("cpu_target") + " is for the kernels of the CPU",
                  "leave it out, or use " + Param("device") + " cpu");
  }
  switch (device.type) {
    case DeviceType::kCPU:
      return cpu::CpuOps::Make(options);
    case DeviceType::kCUDA:
#ifdef KUIPER_WITH_CUDA
      return cuda::MakeCudaOps(device, options);
#else
      return NotBuilt(device);
#endif
    case DeviceType::kSimt:
#ifdef KUIPER_WITH_SIMT
      return simt_gpu::MakeCudaOps(device, options);
#else
      return NotBuilt(device);
#endif
  }
  return Status(StatusCode::kInternal, "unknown device type");
}

StatusOr<DeviceRates> MeasureDeviceRates(Device device, size_t bytes, int repetitions) {
#ifdef KUIPER_WITH_CUDA
  if (device.type == DeviceType::kCUDA) return cuda::MeasureRates(device, bytes, repetitions);
#endif
#ifdef KUIPER_WITH_SIMT
  if (device.type == DeviceType::kSimt) return simt_gpu::MeasureRates(device, bytes, repetitions);
#endif
  static_cast<void>(bytes);
  static_cast<void>(repetitions);
  return NotBuilt(device);
}

bool IsUsable(Device device) {
#ifdef KUIPER_WITH_SIMT
  if (device.type == DeviceType::kSimt) return simt_gpu::IsUsable(device);
#endif
#ifdef KUIPER_WITH_CUDA
  if (device.type == DeviceType::kCUDA) return cuda::IsUsable(device);
#endif
  return device == Device{};
}

std::vector<Device> UsableDevices() {
  std::vector<Device> devices = {Device{}};
#ifdef KUIPER_WITH_SIMT
  for (int i = 0; i < simt_gpu::NumDevices(); ++i) devices.push_back({DeviceType::kSimt, i});
#endif
#ifdef KUIPER_WITH_CUDA
  for (int i = 0; i < cuda::NumDevices(); ++i) devices.push_back({DeviceType::kCUDA, i});
#endif
  std::erase_if(devices, [](Device device) { return !IsUsable(device); });
  return devices;
}

std::string CompiledDevices() {
  std::string devices = "cpu (" + cpu::CpuOps::CompiledFor() + ")";
#ifdef KUIPER_WITH_SIMT
  devices += ", simt";
#endif
#ifdef KUIPER_WITH_CUDA
  devices += ", cuda (" + cuda::CompiledSms() + KUIPER_CUDA_PTX ")";
#endif
  return devices;
}

}  // namespace kuiper
