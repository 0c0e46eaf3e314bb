// The interface of the CUDA backend for make_ops.cpp, without CUDA headers. The backend is compiled
// by nvcc for real devices (namespace cuda) and by the C++ compiler for the emulated one
// (simt_gpu).
#pragma once

#include <memory>
#include <string>

#include "kuiper/base/status.h"
#include "kuiper/ops/device_rates.h"
#include "kuiper/ops/ops.h"

namespace kuiper::cuda {
StatusOr<std::unique_ptr<Ops>> MakeCudaOps(Device device, const OpsOptions& options);
// True if the machine has the device and the build has kernels for it. Initialises the device.
bool IsUsable(Device device);
// Number of devices of the machine, usable or not.
int NumDevices();
StatusOr<DeviceRates> MeasureRates(Device device, size_t bytes, int repetitions);
// Architectures for which the kernels were compiled: "sm_80, sm_87".
std::string CompiledSms();
}  // namespace kuiper::cuda

namespace kuiper::simt_gpu {
StatusOr<std::unique_ptr<Ops>> MakeCudaOps(Device device, const OpsOptions& options);
bool IsUsable(Device device);
int NumDevices();
StatusOr<DeviceRates> MeasureRates(Device device, size_t bytes, int repetitions);
std::string CompiledSms();
}  // namespace kuiper::simt_gpu
