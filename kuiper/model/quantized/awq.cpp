// AutoAWQ's "gemm" packing: qweight [in, out / 8], qzeros [groups, out / 8] and scales
// [groups, out]. A word holds eight outputs of one input, the even ones in its low half
// (awq/utils/packing_utils.py: AWQ_ORDER).
#include <utility>

#include "kuiper/model/quantized/packed_bytes.h"

namespace kuiper {
namespace {

constexpr int kPerWord = 8;
// Position of each of the outputs 0 to 7 in a word.
constexpr int kPosition[kPerWord] = {0, 4, 1, 5, 2, 6, 3, 7};

// Transposes eight words of eight codes: code j of word i becomes code i of word j.
void TransposeCodes(uint32_t (&words)[kPerWord]) {
  constexpr std::pair<int, uint32_t> kSteps[] = {
      {4, 0x0000FFFFu}, {2, 0x00FF00FFu}, {1, 0x0F0F0F0Fu}};
  for (const auto& [distance, mask] : kSteps) {
    for (int i = 0; i < kPerWord; ++i) {
      if ((i & distance) != 0) continue;
      const uint32_t swapped = ((words[i] >> (4 * distance)) ^ words[i + distance]) & mask;
      words[i + distance] ^= swapped;
      words[i] ^= swapped << (4 * distance);
    }
  }
}

// A unit is eight inputs, which is one word of each of eight outputs.
void UnpackCodes(const PackedTensor& tensor, PackedTensor::Piece piece, char* out) {
  const int64_t row_bytes = tensor.becomes.shape[1];
  const int64_t words = tensor.becomes.shape[0] / kPerWord;  // words in a row of the file
  const int64_t units = static_cast<int64_t>(piece.bytes.size()) / tensor.unit_bytes;
  for (int64_t column = 0; column < words; ++column) {
    for (int64_t unit = 0; unit < units; ++unit) {
      const char* from = piece.bytes.data() + unit * tensor.unit_bytes + column * 4;
      uint32_t block[kPerWord];
      for (int i = 0; i < kPerWord; ++i) block[i] = LoadWord<uint32_t>(from + i * words * 4);
      TransposeCodes(block);
      char* to = out + column * kPerWord * row_bytes + (piece.first + unit) * 4;
      for (int i = 0; i < kPerWord; ++i) std::memcpy(to + i * row_bytes, &block[kPosition[i]], 4);
    }
  }
}

void UnpackZeros(const PackedTensor& tensor, PackedTensor::Piece piece, char* out) {
  UnpackZerosByGroup(tensor, piece, kPosition, out);
}

}  // namespace

StatusOr<PackedMatrix> ReadAwqMatrix(const QuantizationConfig& config, const TensorReader& reader) {
  const int64_t out = reader.out(), in = reader.in(), groups = reader.groups();
  const int64_t words = (out + kPerWord - 1) / kPerWord;
  KU_ASSIGN_OR_RETURN(StoredTensor codes, reader.Require("qweight", {"I32"}, {in, words}));
  if (out % kPerWord != 0) {
    return TensorError(
        codes, "belongs to " + std::to_string(out) + " outputs, which are not a multiple of 8");
  }
  KU_ASSIGN_OR_RETURN(StoredTensor scales, reader.RequireScales("scales", groups, out));
  KU_ASSIGN_OR_RETURN(StoredTensor zeros, reader.Require("qzeros", {"I32"}, {groups, words}));
  PackedMatrix matrix{.format = config.FormatOf(in, *scales.type->dtype)};
  matrix.values = {.stored = std::move(codes),
                   .becomes = Tensor::Dense(nullptr, DType::kU8, {out, in / 2}),
                   .unit_bytes = kPerWord * words * 4,
                   .unpack = UnpackCodes};
  matrix.scales = ScalesByGroup(std::move(scales));
  matrix.zeros = ZerosByGroup(config, std::move(zeros), out, UnpackZeros);
  return matrix;
}

}  // namespace kuiper
