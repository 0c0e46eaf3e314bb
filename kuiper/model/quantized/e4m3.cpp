// Block-wise FP8, as Qwen publishes it: weight [out, in] of E4M3, and weight_scale_inv, a scale for
// each block of [128, 128]. Both are used in place.
#include <utility>

#include "kuiper/model/quantized/packed_bytes.h"

namespace kuiper {
namespace {

// Refuses the two NaN codes of E4M3, which would spoil every output of their row.
Status VerifyNumbers(const PackedTensor& tensor, PackedTensor::Piece piece) {
  unsigned char is_nan = 0;
  for (const char c : piece.bytes) is_nan |= static_cast<unsigned char>((c & 0x7F) == 0x7F);
  return is_nan != 0 ? TensorError(tensor.stored, "has values that are not numbers (NaN)",
                                   "the file is damaged: download or copy it again")
                     : OkStatus();
}

}  // namespace

StatusOr<PackedMatrix> ReadE4M3Matrix(const QuantizationConfig& config,
                                      const TensorReader& reader) {
  const int64_t out = reader.out(), in = reader.in(), groups = reader.groups();
  KU_ASSIGN_OR_RETURN(StoredTensor codes, reader.Require("weight", {"F8_E4M3"}, {out, in}));
  const int64_t row_groups = config.FormatOf(in, DType::kF32).row_groups(out);
  KU_ASSIGN_OR_RETURN(StoredTensor scales,
                      reader.RequireScales("weight_scale_inv", row_groups, groups));
  const DType scale_type = *scales.type->dtype;
  PackedMatrix matrix{.format = config.FormatOf(in, scale_type)};
  matrix.values = InPlace(std::move(codes), DType::kU8, out, in);
  matrix.values.verify = VerifyNumbers;
  matrix.scales = InPlace(std::move(scales), scale_type, row_groups, groups);
  return matrix;
}

}  // namespace kuiper
