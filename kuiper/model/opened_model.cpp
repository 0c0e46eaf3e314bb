#include "kuiper/model/opened_model.h"

#include <utility>

#include "kuiper/model/file_weights.h"
#include "kuiper/model/random_weights.h"

namespace kuiper {
namespace {

StatusOr<OpenedModel> ReadTexts(std::unique_ptr<WeightSource> source) {
  OpenedModel model;
  const ModelFiles& files = source->files();
  KU_ASSIGN_OR_RETURN(model.config, ParseModelConfig(files.config_json));
  if (!files.generation_config_json.empty()) {
    KU_ASSIGN_OR_RETURN(model.generation, ParseGenerationConfig(files.generation_config_json));
  }
  model.source = std::move(source);
  return model;
}

}  // namespace

Status OpenedModel::CheckSupported() const {
  if (config.supported) return OkStatus();
  return Status(StatusCode::kModel, files().path + " holds a " + FamilyName(config.family) +
                                        " model, which this version cannot run");
}

StatusOr<OpenedModel> OpenModel(const std::string& path) {
  KU_ASSIGN_OR_RETURN(std::unique_ptr<WeightSource> source, FileWeights::Open(path));
  return ReadTexts(std::move(source));
}

StatusOr<OpenedModel> InventModel(const std::string& config_path) {
  KU_ASSIGN_OR_RETURN(std::unique_ptr<WeightSource> source, MakeRandomWeights(config_path));
  return ReadTexts(std::move(source));
}

}  // namespace kuiper
