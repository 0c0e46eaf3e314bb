#include "kuiper/model/quantized/made_up.h"

#include <algorithm>
#include <cstring>

#include "kuiper/base/check.h"
#include "kuiper/model/convert.h"

namespace kuiper {

void FillRandomCodes(const WeightFormat& format, std::mt19937_64& random, char* out,
                     int64_t bytes) {
  for (int64_t at = 0; at < bytes; at += 8) {
    const uint64_t codes = random();
    std::memcpy(out + at, &codes, static_cast<size_t>(std::min<int64_t>(8, bytes - at)));
  }
  if (format.kind != WeightFormat::Kind::kE4M3) return;
  std::replace_if(
      out, out + bytes, [](char code) { return (code & 0x7F) == 0x7F; }, char{0});
}

void FillRandomZeros(const WeightFormat& format, std::mt19937_64& random, char* out,
                     int64_t bytes) {
  FillRandomCodes(format, random, out, bytes);
  const int mask = (1 << format.code_bits()) - 1;
  std::transform(out, out + bytes, out,
                 [mask](char code) { return static_cast<char>(code & mask); });
}

void FillRandomScales(const WeightFormat& format, std::mt19937_64& random, char* out,
                      int64_t bytes) {
  // Trained weights are about 2^-6; codes of E4M3 reach 448.
  constexpr float kWeight = 0x1p-6f;
  const float largest_code =
      format.kind == WeightFormat::Kind::kE4M3 ? 448.0f : static_cast<float>(format.default_zero());
  const auto size = static_cast<int64_t>(DTypeBytes(format.scale_type));
  for (int64_t at = 0; at < bytes; at += size) {
    const float fraction = static_cast<float>(random() >> 40) * 0x1p-24f;
    const float scale = kWeight / largest_code * (1.0f + fraction);
    KU_CHECK(ConvertFloats(out + at, format.scale_type, &scale, DType::kF32, 1));
  }
}

}  // namespace kuiper
