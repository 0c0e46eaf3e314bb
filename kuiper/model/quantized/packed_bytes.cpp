#include "kuiper/model/quantized/packed_bytes.h"

#include <utility>

namespace kuiper {
namespace {

// Checks that every code of a word is the stored form of the middle code.
Status VerifyMiddle(const PackedTensor& tensor, PackedTensor::Piece piece) {
  const int bits = tensor.code_bits, middle = 1 << (bits - 1);
  const uint32_t code = static_cast<uint32_t>(middle - tensor.zero_offset);
  const uint32_t expected = code * (0xFFFFFFFFu / ((1u << bits) - 1));
  for (size_t at = 0; at < piece.bytes.size(); at += sizeof(uint32_t)) {
    if (LoadWord<uint32_t>(piece.bytes.data() + at) == expected) continue;
    return TensorError(tensor.stored, "has a zero other than " + std::to_string(middle) +
                                          ", but config.json says that weights are symmetric");
  }
  return OkStatus();
}

}  // namespace

PackedTensor ScalesByGroup(StoredTensor stored) {
  const int64_t groups = stored.shape[0], out = stored.shape[1];
  const DType type = *stored.type->dtype;
  const bool is_wide = DTypeBytes(type) == 4;
  PackedTensor scales{.stored = std::move(stored),
                      .becomes = Tensor::Dense(nullptr, type, {out, groups}),
                      .unit_bytes = out * static_cast<int64_t>(DTypeBytes(type))};
  scales.unpack = is_wide ? Transpose<uint32_t> : Transpose<uint16_t>;
  return scales;
}

PackedTensor ZerosByGroup(const QuantizationConfig& config, StoredTensor stored, int64_t out,
                          decltype(PackedTensor::unpack) unpack) {
  PackedTensor zeros{.stored = std::move(stored)};
  zeros.unit_bytes = zeros.stored.shape[1] * static_cast<int64_t>(sizeof(uint32_t));
  zeros.code_bits = config.FormatOf(0, DType::kF32).code_bits();
  zeros.zero_offset = config.zero_offset;
  if (config.is_symmetric) {
    zeros.verify = VerifyMiddle;
  } else {
    zeros.becomes = Tensor::Dense(nullptr, DType::kU8, {out, zeros.stored.shape[0]});
    zeros.unpack = unpack;
  }
  return zeros;
}

void UnpackZerosByGroup(const PackedTensor& tensor, PackedTensor::Piece piece,
                        std::span<const int> position, char* out) {
  const int64_t rows = tensor.becomes.shape[0], groups = tensor.becomes.shape[1];
  const int64_t per_word = 32 / tensor.code_bits;
  const uint32_t mask = (1u << tensor.code_bits) - 1;
  for (size_t at = 0; at < piece.bytes.size(); at += static_cast<size_t>(tensor.unit_bytes)) {
    const int64_t group = piece.first + static_cast<int64_t>(at) / tensor.unit_bytes;
    const char* words = piece.bytes.data() + at;
    for (int64_t row = 0; row < rows; ++row) {
      const uint32_t word = LoadWord<uint32_t>(words + row / per_word * 4);
      const uint32_t code = CodeOf(word, position[row % per_word], tensor.code_bits);
      out[row * groups + group] =
          static_cast<char>((code + static_cast<uint32_t>(tensor.zero_offset)) & mask);
    }
  }
}

}  // namespace kuiper
