#include "kuiper/engine/picture_config.h"

#include "kuiper/model/weight_source.h"

namespace kuiper {

StatusOr<VisionConfig> ReadVisionConfig(const OpenedModel& model) {
  const ModelFiles& files = model.files();
  if (!model.config.vision.has_value()) {
    return Status(StatusCode::kModel, files.path + " holds a model that takes text only");
  }
  const VisionEncoderConfig& tower = *model.config.vision;
  KU_ASSIGN_OR_RETURN(const VisionConfig config,
                      files.processor_json.empty() && files.preprocessor_json.empty()
                          ? ReadVisionConfig(files.dir)
                          : ParseVisionConfig({.both = files.processor_json,
                                               .images = files.preprocessor_json,
                                               .videos = files.video_preprocessor_json},
                                              files.path + ", "));
  if (config.patch_size == tower.patch && config.temporal_patch_size == tower.temporal_patch &&
      config.merge_size == tower.merge) {
    return config;
  }
  return Status(StatusCode::kModel,
                files.path +
                    ": the settings of its image processor and config.json differ in the size of "
                    "patches or in how many become a token");
}

}  // namespace kuiper
