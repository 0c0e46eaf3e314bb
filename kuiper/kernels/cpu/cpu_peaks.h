// The peak rates of this machine, measured on the threads that run the kernels; the benchmark
// compares kernels with them. Each call is one short burst; callers alternate bursts with their own
// measurements.
#pragma once

#include <cstddef>

#include "kuiper/kernels/cpu/thread_pool.h"
#include "kuiper/ops/weight_format.h"

namespace kuiper::cpu {

// Returns the bytes per second at which all threads together read [data, data + bytes) once; each
// reads a contiguous share.
double MeasureReadBandwidth(ThreadPool& pool, const void* data, size_t bytes);
// Returns the FLOP per second of register-only multiply-adds, measured for about `seconds`. They
// are those the linear layer uses for this weight format: FP32 FMA for F32 and F16; for BF16 its
// dot product where the CPU has one.
double MeasurePeakFlops(ThreadPool& pool, WeightFormat weights, double seconds = 0.002);

}  // namespace kuiper::cpu
