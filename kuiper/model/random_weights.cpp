// Random weights. The loader generates the matrices directly on the device, so no other copy
// exists. Norms are ones and biases zeros.
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "kuiper/base/check.h"
#include "kuiper/base/text.h"
#include "kuiper/model/convert.h"
#include "kuiper/model/manifest.h"
#include "kuiper/model/opened_model.h"

namespace kuiper {
namespace {

class RandomWeights : public WeightSource {
 public:
  RandomWeights(ModelFiles files, DType dtype, QuantizationConfig quantization)
      : files_(std::move(files)), dtype_(dtype), quantization_(std::move(quantization)) {}

  const ModelFiles& files() const override { return files_; }
  int64_t file_bytes() const override { return 0; }

  StatusOr<Tensor> Get(const Weight& weight) override {
    const std::vector<int64_t>& shape = weight.shape;
    if (weight.is_matrix()) return Tensor::Dense(nullptr, dtype_, {shape[0], shape[1]});
    std::vector<char>& bytes = vectors_[weight.name];
    const std::vector<float> values(static_cast<size_t>(shape[0]),
                                    weight.role == WeightRole::kNorm ? 1.0f : 0.0f);
    bytes.resize(values.size() * DTypeBytes(dtype_));
    KU_CHECK(ConvertFloats(bytes.data(), dtype_, values.data(), DType::kF32, shape[0]));
    return Tensor::Dense(bytes.data(), dtype_, {shape[0]});
  }

  // Quantises all matrices except the LM head, as most checkpoints do.
  StatusOr<std::optional<PackedMatrix>> GetPacked(const Weight& weight) override {
    std::optional<PackedMatrix> made_up;
    const QuantizationConfig& q = quantization_;
    if (q.packing == QuantizationConfig::Packing::kNone || weight.is_head() ||
        Excludes(q, ModuleOf(weight)) == Exclusion::kYes) {
      return made_up;
    }
    const int64_t out = weight.shape[0], in = weight.shape[1];
    if (in % WeightFormat::kQuantum != 0) {
      return Status(StatusCode::kModel, files_.path + ": " + Quoted(weight.name) + " has " +
                                            std::to_string(in) +
                                            " inputs, which are not a multiple of 32");
    }
    const WeightFormat format = q.FormatOf(in, dtype_);
    const auto as = [](DType dtype, int64_t rows, int64_t columns) {
      return PackedTensor{.becomes = Tensor::Dense(nullptr, dtype, {rows, columns})};
    };
    made_up = PackedMatrix{
        .format = format,
        .values = as(DType::kU8, out, format.RowBytes(in)),
        .scales = as(format.scale_type, format.row_groups(out), format.column_groups(in))};
    if (!q.is_symmetric) made_up->zeros = as(DType::kU8, out, format.column_groups(in));
    return made_up;
  }

 private:
  ModelFiles files_;
  DType dtype_;
  QuantizationConfig quantization_;
  std::map<std::string, std::vector<char>> vectors_;
};

}  // namespace

StatusOr<OpenedModel> MakeRandomModel(const std::string& config_path) {
  ModelFiles files;
  files.path = config_path;
  KU_ASSIGN_OR_RETURN(files.config_json,
                      ReadTextFile(config_path, kMaxConfigBytes, StatusCode::kModel));
  OpenedModel model;
  KU_ASSIGN_OR_RETURN(model.config, ParseModelConfig(files.config_json));
  model.source = std::make_unique<RandomWeights>(std::move(files), model.config.decoder.dtype,
                                                 model.config.quantization);
  return model;
}

}  // namespace kuiper
