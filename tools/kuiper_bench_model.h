// A checkpoint of any size without a download: random weights in the shapes of a config.json.
#pragma once

#include <optional>
#include <string>

#include "kuiper/base/dtype.h"
#include "kuiper/base/status.h"

namespace kuiper::tools {

// A temporary model directory; deletes its files at the end.
class InventedModel {
 public:
  InventedModel() = default;
  InventedModel(const InventedModel&) = delete;
  InventedModel& operator=(const InventedModel&) = delete;
  ~InventedModel();

  // Writes config.json and model.safetensors into a new directory below `parent`. Weights are of
  // `dtype`, or of the type the config names.
  Status Make(const std::string& config_path, std::optional<DType> dtype,
              const std::string& parent);
  const std::string& dir() const { return dir_; }
  std::string weights_path() const { return dir_ + "/model.safetensors"; }

 private:
  std::string dir_;
};

// The file that holds the weights of the model at this path, or most of them.
std::string LargestWeightsFile(const std::string& model_path);

}  // namespace kuiper::tools
