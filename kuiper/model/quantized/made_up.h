// Random quantised values and scales, for quantised matrices of a given shape without files.
#pragma once

#include <cstdint>
#include <random>

#include "kuiper/ops/weight_format.h"

namespace kuiper {

// Writes random codes. Any code may occur except the NaN codes of E4M3.
void FillRandomCodes(const WeightFormat& format, std::mt19937_64& random, char* out, int64_t bytes);
// Writes random zero points, one code per byte.
void FillRandomZeros(const WeightFormat& format, std::mt19937_64& random, char* out, int64_t bytes);
// Writes small positive scales, which make weights about as large as trained ones.
void FillRandomScales(const WeightFormat& format, std::mt19937_64& random, char* out,
                      int64_t bytes);

}  // namespace kuiper
