// Weights that nobody trained. The loader makes the matrices where they are needed, so nothing but
// the device holds them; norms are ones and biases zeros.
#include <map>
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
  RandomWeights(ModelFiles files, DType dtype) : files_(std::move(files)), dtype_(dtype) {}

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

 private:
  ModelFiles files_;
  DType dtype_;
  std::map<std::string, std::vector<char>> vectors_;
};

}  // namespace

StatusOr<OpenedModel> InventModel(const std::string& config_path) {
  ModelFiles files;
  files.path = config_path;
  KU_ASSIGN_OR_RETURN(files.config_json,
                      ReadTextFile(config_path, kMaxConfigBytes, StatusCode::kModel));
  OpenedModel model;
  KU_ASSIGN_OR_RETURN(model.config, ParseModelConfig(files.config_json));
  model.source = std::make_unique<RandomWeights>(std::move(files), model.config.decoder.dtype);
  return model;
}

}  // namespace kuiper
