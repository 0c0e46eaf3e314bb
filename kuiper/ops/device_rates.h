// The highest rates of a device with plain kernels: the yardsticks of kuiper_bench. The CPU has its
// own, measured around the work (kernels/cpu/cpu_peaks.h).
#pragma once

#include <cstddef>

#include "kuiper/base/device.h"
#include "kuiper/base/status.h"

namespace kuiper {

// Bytes per second.
struct DeviceRates {
  double read = 0;
  double copy = 0;  // bytes read plus bytes written
};

// Reads and copies buffers of `bytes`, `repetitions` times each. `bytes` must exceed the caches, or
// their speed is measured instead. kUnavailable if MakeOps returns it, and for the CPU.
StatusOr<DeviceRates> MeasureDeviceRates(Device device, size_t bytes, int repetitions);

}  // namespace kuiper
