// pack-quantized of compressed-tensors. weight_packed [out, in * bits / 32] has the bytes of the
// matrix in memory. The other tensors are weight_scale [out, groups], weight_shape [2] and, unless
// symmetric, weight_zero_point [out * bits / 32, groups], whose words hold consecutive outputs.
#include <utility>

#include "kuiper/model/quantized/packed_bytes.h"

namespace kuiper {
namespace {

// A unit is a row of words.
void UnpackZeros(const PackedTensor& tensor, PackedTensor::Piece piece, char* out) {
  const int64_t rows = tensor.becomes.shape[0], groups = tensor.becomes.shape[1];
  const int64_t per_word = 32 / tensor.code_bits;
  const int64_t units = static_cast<int64_t>(piece.bytes.size()) / tensor.unit_bytes;
  const int64_t end = std::min(rows, (piece.first + units) * per_word);
  for (int64_t row = piece.first * per_word; row < end; ++row) {
    const char* words = piece.bytes.data() + (row / per_word - piece.first) * tensor.unit_bytes;
    for (int64_t group = 0; group < groups; ++group) {
      const uint32_t word = LoadWord<uint32_t>(words + group * 4);
      out[row * groups + group] =
          static_cast<char>(CodeOf(word, static_cast<int>(row % per_word), tensor.code_bits));
    }
  }
}

Status CheckShape(const TensorReader& reader) {
  if (!reader.Find("weight_shape").has_value()) return OkStatus();
  KU_ASSIGN_OR_RETURN(const StoredTensor shape,
                      reader.Require("weight_shape", {"I64", "I32"}, {2}));
  const int64_t expected[] = {reader.out(), reader.in()};
  for (int i = 0; i < 2; ++i) {
    const char* at = shape.bytes.data() + i * shape.type->bits / 8;
    const int64_t size = shape.Is("I64") ? LoadWord<int64_t>(at) : LoadWord<int32_t>(at);
    if (size == expected[i]) continue;
    return TensorError(shape, "says " + std::to_string(size) + " where config.json asks for " +
                                  std::to_string(expected[i]));
  }
  return OkStatus();
}

}  // namespace

StatusOr<PackedMatrix> ReadCompressedTensorsMatrix(const QuantizationConfig& config,
                                                   const TensorReader& reader) {
  const int64_t out = reader.out(), in = reader.in(), groups = reader.groups();
  const int bits = config.FormatOf(in, DType::kF32).code_bits();
  KU_ASSIGN_OR_RETURN(StoredTensor codes,
                      reader.Require("weight_packed", {"I32"}, {out, in * bits / 32}));
  KU_ASSIGN_OR_RETURN(StoredTensor scales, reader.RequireScales("weight_scale", out, groups));
  KU_RETURN_IF_ERROR(CheckShape(reader));
  if (const auto index = reader.Find("weight_g_idx"); index.has_value()) {
    return TensorError(*index, "puts columns into groups out of order, which is not supported",
                       "use a checkpoint whose actorder is null or static");
  }
  const DType scale_type = *scales.type->dtype;
  PackedMatrix matrix{.format = config.FormatOf(in, scale_type)};
  matrix.values = InPlace(std::move(codes), DType::kU8, out, in * bits / 8);
  matrix.scales = InPlace(std::move(scales), scale_type, out, groups);
  if (config.is_symmetric) return matrix;
  const int64_t words = (out * bits + 31) / 32;
  KU_ASSIGN_OR_RETURN(StoredTensor zeros,
                      reader.Require("weight_zero_point", {"I32"}, {words, groups}));
  matrix.zeros = {.stored = std::move(zeros),
                  .becomes = Tensor::Dense(nullptr, DType::kU8, {out, groups}),
                  .unit_bytes = groups * 4,
                  .code_bits = bits,
                  .unpack = UnpackZeros};
  return matrix;
}

}  // namespace kuiper
