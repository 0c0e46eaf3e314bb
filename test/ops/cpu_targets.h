// Runs a test body once per instruction set that this machine has and the CPU kernels are compiled
// for. Restores run-time dispatch afterwards.
#pragma once

#include <cstdint>
#include <string>

#include "kuiper/base/device.h"
#include "kuiper/kernels/cpu/cpu_target.h"
#include "kuiper/kernels/cpu/targets.h"
// After targets.h.
#include "hwy/targets.h"

namespace kuiper::test {

template <typename F>
void ForEachCpuTarget(const F& f) {
  const int64_t supported = hwy::SupportedTargets();
  for (int64_t target : {int64_t{HWY_AVX3}, int64_t{HWY_AVX2}, int64_t{HWY_SSE4}, int64_t{KU_NEON},
                         int64_t{HWY_STATIC_TARGET}}) {
    if ((HWY_TARGETS & target) == 0 || (supported & target) == 0) continue;
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
    f(std::string(cpu::TargetName(target)));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

// Runs f with run-time dispatch and, on the CPU, once per instruction set.
template <typename F>
void OnEveryTarget(Device device, const F& f) {
  f(std::string("dispatched"));
  if (device.type == DeviceType::kCPU) ForEachCpuTarget(f);
}

}  // namespace kuiper::test
