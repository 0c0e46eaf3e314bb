// The image processing that an opened model requires. Programs read it before weights are loaded,
// to make prompts with pictures.
#pragma once

#include "kuiper/base/status.h"
#include "kuiper/io/image/vision_config.h"
#include "kuiper/model/opened_model.h"

namespace kuiper {

// Reads it from the model's folder or container. kModel if the model takes text only, or if the
// file is missing, damaged or contradicts config.json.
StatusOr<VisionConfig> ReadVisionConfig(const OpenedModel& model);

}  // namespace kuiper
