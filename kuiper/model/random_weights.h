// Weights that nobody trained, in the shapes of a config.json: speed and memory of a model can be
// measured without its files. The loader makes the matrices where they are needed, so nothing but
// the device holds them.
#pragma once

#include <memory>
#include <string>

#include "kuiper/base/status.h"
#include "kuiper/model/weight_source.h"

namespace kuiper {

// Of the type that the config names. Matrices have no data (WeightSource::Get); norms are ones and
// biases zeros. kModel when the file is no configuration of a model.
StatusOr<std::unique_ptr<WeightSource>> MakeRandomWeights(const std::string& config_path);

}  // namespace kuiper
