// The only place that knows which backends were built.
#include "kuiper/kernels/cpu/cpu_ops.h"
#include "kuiper/kernels/cuda/make_cuda_ops.h"
#include "kuiper/ops/ops.h"

namespace kuiper {

StatusOr<std::unique_ptr<Ops>> MakeOps(Device device, const OpsOptions& options) {
  switch (device.type) {
    case DeviceType::kCPU:
      return std::unique_ptr<Ops>(new cpu::CpuOps(options));
    case DeviceType::kCUDA:
#ifdef KUIPER_WITH_CUDA
      return cuda::MakeCudaOps(device, options);
#else
      return Status(StatusCode::kUnavailable,
                    "no CUDA device found (this build has no CUDA support)",
                    "--device cpu runs without one");
#endif
    case DeviceType::kSimt:
#ifdef KUIPER_WITH_SIMT
      return simt_gpu::MakeCudaOps(device, options);
#else
      return Status(StatusCode::kUnavailable,
                    "no simt device found (this build has no CUDA kernels to emulate)",
                    "--device cpu runs without one");
#endif
  }
  return Status(StatusCode::kInternal, "unknown device type");
}

std::string CompiledDevices() {
  std::string devices = "cpu";
#ifdef KUIPER_WITH_SIMT
  devices += ", simt";
#endif
#ifdef KUIPER_WITH_CUDA
  devices += ", cuda (sm " KUIPER_CUDA_ARCHITECTURES ")";
#endif
  return devices;
}

}  // namespace kuiper
