// GPTQ's packing, which AutoRound also uses: qweight [in * bits / 32, out], qzeros [groups, out *
// bits / 32], scales [groups, out] and g_idx [in]. A word holds consecutive inputs (in qzeros:
// outputs), starting at its low bits. The words are those of the matrix in memory, but transposed.
#include <utility>

#include "kuiper/model/quantized/packed_bytes.h"

namespace kuiper {
namespace {

constexpr int kInOrder[] = {0, 1, 2, 3, 4, 5, 6, 7};

void UnpackZeros(const PackedTensor& tensor, PackedTensor::Piece piece, char* out) {
  UnpackZerosByGroup(tensor, piece, kInOrder, out);
}

// Columns sorted by importance (desc_act) do not share scales with their neighbours, so refuses
// them.
Status CheckGroupIndex(const StoredTensor& index, int64_t group_columns) {
  for (int64_t column = 0; column < index.shape[0]; ++column) {
    const int32_t group = LoadWord<int32_t>(index.bytes.data() + column * 4);
    if (group == column / group_columns) continue;
    return TensorError(index,
                       "puts column " + std::to_string(column) + " into group " +
                           std::to_string(group) + ": columns out of order are not supported",
                       "use a checkpoint that was quantised with desc_act false");
  }
  return OkStatus();
}

}  // namespace

StatusOr<PackedMatrix> ReadGptqMatrix(const QuantizationConfig& config,
                                      const TensorReader& reader) {
  const int64_t out = reader.out(), in = reader.in(), groups = reader.groups();
  const int64_t per_word = 32 / config.FormatOf(in, DType::kF32).code_bits();
  KU_ASSIGN_OR_RETURN(StoredTensor codes, reader.Require("qweight", {"I32"}, {in / per_word, out}));
  if (out % per_word != 0) {
    return TensorError(codes, "belongs to " + std::to_string(out) +
                                  " outputs, which are not a multiple of " +
                                  std::to_string(per_word));
  }
  KU_ASSIGN_OR_RETURN(StoredTensor scales, reader.RequireScales("scales", groups, out));
  KU_ASSIGN_OR_RETURN(StoredTensor zeros,
                      reader.Require("qzeros", {"I32"}, {groups, out / per_word}));
  PackedMatrix matrix{.format = config.FormatOf(in, *scales.type->dtype)};
  if (reader.Find("g_idx").has_value()) {
    KU_ASSIGN_OR_RETURN(const StoredTensor index, reader.Require("g_idx", {"I32"}, {in}));
    KU_RETURN_IF_ERROR(CheckGroupIndex(index, matrix.format.group_columns));
  }
  matrix.values = {.stored = std::move(codes),
                   .becomes = Tensor::Dense(nullptr, DType::kU8, {out, in / per_word * 4}),
                   .unit_bytes = out * 4,
                   .unpack = Transpose<uint32_t>};
  matrix.scales = ScalesByGroup(std::move(scales));
  matrix.zeros = ZerosByGroup(config, std::move(zeros), out, UnpackZeros);
  return matrix;
}

}  // namespace kuiper
