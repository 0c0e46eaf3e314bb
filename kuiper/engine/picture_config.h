// How an opened model wants its pictures. Read by whoever makes prompts with them, before weights
// are.
#pragma once

#include "kuiper/base/status.h"
#include "kuiper/io/image/vision_config.h"
#include "kuiper/model/opened_model.h"

namespace kuiper {

// From the model's folder or container. kModel when it takes text only, or when its file is
// missing, damaged or contradicts config.json.
StatusOr<VisionConfig> ReadVisionConfig(const OpenedModel& model);

}  // namespace kuiper
