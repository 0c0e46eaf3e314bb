// The best this machine can do, measured by the threads that run the kernels: the yardsticks of the
// benchmark. Each call is one short burst; callers alternate bursts with what they measure.
#pragma once

#include <cstddef>

#include "kuiper/kernels/cpu/thread_pool.h"
#include "kuiper/ops/weight_format.h"

namespace kuiper::cpu {

// Bytes per second of all threads reading [data, data + bytes) once, each its own contiguous share.
double MeasureReadBandwidth(ThreadPool& pool, const void* data, size_t bytes);
// FLOP per second of register-only multiply-adds in the form the linear layer uses for weights of
// this format (F32 and F16: FP32 FMA; BF16: its dot product where the CPU has one), for about
// `seconds`.
double MeasurePeakFlops(ThreadPool& pool, WeightFormat weights, double seconds = 0.002);

}  // namespace kuiper::cpu
