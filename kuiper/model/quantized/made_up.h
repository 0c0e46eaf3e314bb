// Codes and scales that nobody trained, for quantised matrices of a shape without files.
#pragma once

#include <cstdint>
#include <random>

#include "kuiper/ops/weight_format.h"

namespace kuiper {

// Each code may occur but those of E4M3 that are no numbers.
void MakeUpCodes(const WeightFormat& format, std::mt19937_64& random, char* out, int64_t bytes);
// A code in a byte.
void MakeUpZeros(const WeightFormat& format, std::mt19937_64& random, char* out, int64_t bytes);
// Small positive factors that make weights about as large as trained ones.
void MakeUpScales(const WeightFormat& format, std::mt19937_64& random, char* out, int64_t bytes);

}  // namespace kuiper
