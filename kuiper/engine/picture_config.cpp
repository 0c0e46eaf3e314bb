#include "kuiper/engine/picture_config.h"

#include "kuiper/model/weight_source.h"

namespace kuiper {

StatusOr<VisionConfig> ReadVisionConfig(const OpenedModel& model) {
  const ModelFiles& files = model.files();
  if (!model.config.vision.has_value()) {
    return Status(StatusCode::kModel, files.path + " holds a model that takes text only");
  }
  const VisionTowerConfig& tower = *model.config.vision;
  KU_ASSIGN_OR_RETURN(
      const VisionConfig config,
      files.preprocessor_json.empty()
          ? ReadVisionConfig(files.dir)
          : ParseVisionConfig(files.preprocessor_json, files.path + ", preprocessor_config.json",
                              files.video_preprocessor_json,
                              files.path + ", video_preprocessor_config.json"));
  if (config.patch_size == tower.patch && config.temporal_patch_size == tower.temporal_patch &&
      config.merge_size == tower.merge) {
    return config;
  }
  return Status(StatusCode::kModel,
                files.path +
                    ": preprocessor_config.json and config.json differ in the size of "
                    "patches or in how many become a token");
}

}  // namespace kuiper
