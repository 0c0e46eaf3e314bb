// How make_ops.cpp reaches the CUDA backend without CUDA headers. The backend is compiled by nvcc
// for real devices (namespace cuda) and by the C++ compiler for the emulated one (simt_gpu).
#pragma once

#include <memory>
#include <string>

#include "kuiper/base/status.h"
#include "kuiper/ops/device_rates.h"
#include "kuiper/ops/ops.h"

namespace kuiper::cuda {
StatusOr<std::unique_ptr<Ops>> MakeCudaOps(Device device, const OpsOptions& options);
// Whether the machine has it and the build has kernels for it. Makes it ready for work.
bool IsUsable(Device device);
// That the machine has, whatever they are.
int NumDevices();
StatusOr<DeviceRates> MeasureRates(Device device, size_t bytes, int repetitions);
// "sm_80, sm_87": what the kernels were compiled for.
std::string CompiledSms();
}  // namespace kuiper::cuda

namespace kuiper::simt_gpu {
StatusOr<std::unique_ptr<Ops>> MakeCudaOps(Device device, const OpsOptions& options);
bool IsUsable(Device device);
int NumDevices();
StatusOr<DeviceRates> MeasureRates(Device device, size_t bytes, int repetitions);
std::string CompiledSms();
}  // namespace kuiper::simt_gpu
