#include "kuiper/model/quantized/packed_matrix.h"

#include <utility>

#include "kuiper/base/check.h"
#include "kuiper/base/text.h"
#include "kuiper/model/manifest.h"

namespace kuiper {
namespace {

using Packing = QuantizationConfig::Packing;

// Recognises and reads one packing.
struct Reader {
  const char* suffix;  // name suffix of the tensor that holds the codes
  StatusOr<PackedMatrix> (*read)(const QuantizationConfig& config, const TensorReader& reader);
};

const Reader& ReaderOf(Packing packing) {
  static constexpr Reader kReaders[] = {{"qweight", ReadAwqMatrix},
                                        {"qweight", ReadGptqMatrix},
                                        {"weight_packed", ReadCompressedTensorsMatrix},
                                        {"weight", ReadE4M3Matrix}};
  KU_CHECK(packing != Packing::kNone);
  return kReaders[static_cast<int>(packing) - static_cast<int>(Packing::kAwq)];
}

bool IsDense(const StoredTensor& t) {
  return t.Is("F32") || t.Is("F16") || t.Is("BF16");
}

// Returns an error if a dense matrix should be quantised: the configuration does not exclude it
// from quantisation, and it is not a vocabulary matrix.
Status CheckExcluded(const QuantizationConfig& config, const Weight& weight,
                     const StoredTensor& dense) {
  if (weight.role == WeightRole::kVocabulary ||
      Excludes(config, ModuleOf(weight)) != Exclusion::kNo) {
    return OkStatus();
  }
  return TensorError(dense,
                     "is not quantised, though quantization_config of config.json does not "
                     "except it (ignore, targets, modules_to_not_convert)",
                     "config.json and weights must come from the same model");
}

}  // namespace

bool IsScales(std::string_view tensor_name) {
  return tensor_name.ends_with(".scales") || tensor_name.ends_with(".weight_scale") ||
         tensor_name.ends_with(".weight_scale_inv");
}

bool IsKvScale(std::string_view tensor_name) {
  return tensor_name.ends_with(".k_scale") || tensor_name.ends_with(".v_scale");
}

std::string ModuleOf(const Weight& weight) {
  return weight.name.substr(0, weight.name.rfind('.'));
}

Status TensorError(const StoredTensor& tensor, const std::string& what, const std::string& hint) {
  return Status(StatusCode::kModel, tensor.file + ": tensor " + Quoted(tensor.name) + " " + what,
                hint);
}

PackedTensor InPlace(StoredTensor stored, DType type, int64_t rows, int64_t columns) {
  return {.stored = std::move(stored), .becomes = Tensor::Dense(nullptr, type, {rows, columns})};
}

TensorReader::TensorReader(const QuantizationConfig& config, const Weight& weight,
                           const TensorFinder& find)
    : config_(config),
      find_(find),
      module_(ModuleOf(weight)),
      out_(weight.shape[0]),
      in_(weight.shape[1]) {}

int64_t TensorReader::groups() const {
  return config_.FormatOf(in_, DType::kF32).column_groups(in_);
}

std::optional<StoredTensor> TensorReader::Find(const char* suffix) const {
  return find_(module_ + "." + suffix);
}

Status TensorReader::Missing(const char* suffix) const {
  return Status(StatusCode::kModel,
                "tensor " + Quoted(module_ + "." + suffix) +
                    " is missing, which quantization_config of config.json asks for",
                "config.json and weights must come from the same model");
}

StatusOr<StoredTensor> TensorReader::Require(const char* suffix,
                                             std::initializer_list<const char*> types,
                                             const std::vector<int64_t>& shape) const {
  std::optional<StoredTensor> tensor = Find(suffix);
  if (!tensor.has_value()) return Missing(suffix);
  std::string names;
  bool has_type = false;
  for (const char* type : types) {
    has_type = has_type || tensor->Is(type);
    names += (names.empty() ? "" : ", ") + std::string(type);
  }
  if (!has_type) {
    return TensorError(
        *tensor, "has type " + std::string(tensor->type->name) + " (supported: " + names + ")");
  }
  if (tensor->shape != shape) {
    return TensorError(*tensor, "has shape " + ShapeText(tensor->shape) + ", config.json (" +
                                    config_.Describe() + ") asks for " + ShapeText(shape));
  }
  return *std::move(tensor);
}

StatusOr<StoredTensor> TensorReader::RequireScales(const char* suffix, int64_t rows,
                                                   int64_t columns) const {
  return Require(suffix, {"F16", "BF16", "F32"}, {rows, columns});
}

StatusOr<std::optional<PackedMatrix>> FindPacked(const QuantizationConfig& config,
                                                 const Weight& weight, const TensorFinder& find) {
  if (config.packing == Packing::kNone) return std::optional<PackedMatrix>();
  const Reader& reader = ReaderOf(config.packing);
  const TensorReader tensors(config, weight, find);
  const std::optional<StoredTensor> codes = tensors.Find(reader.suffix);
  if (!codes.has_value() || IsDense(*codes)) {
    const std::optional<StoredTensor> dense = tensors.Find("weight");
    if (!dense.has_value() && weight.role != WeightRole::kVocabulary) {
      return tensors.Missing(reader.suffix);
    }
    if (dense.has_value()) KU_RETURN_IF_ERROR(CheckExcluded(config, weight, *dense));
    return std::optional<PackedMatrix>();
  }
  if (Excludes(config, ModuleOf(weight)) == Exclusion::kYes) {
    return TensorError(
        *codes,
        "is quantised, though quantization_config of config.json excepts it (ignore, "
        "targets, modules_to_not_convert)",
        "config.json and weights must come from the same model");
  }
  if (tensors.in() % WeightFormat::kQuantum != 0) {
    return TensorError(
        *codes,
        "belongs to " + std::to_string(tensors.in()) + " inputs, which are not a multiple of 32",
        "use the model without quantisation");
  }
  if (!config.FormatOf(tensors.in(), DType::kF32).SupportsGroups(tensors.in())) {
    return TensorError(*codes,
                       "has groups of " + std::to_string(config.group_columns) +
                           " columns (supported: 32, 64, multiples of 128, whole rows)",
                       "use a checkpoint with group_size 128, 64 or 32");
  }
  KU_ASSIGN_OR_RETURN(PackedMatrix matrix, reader.read(config, tensors));
  return std::optional<PackedMatrix>(std::move(matrix));
}

}  // namespace kuiper
