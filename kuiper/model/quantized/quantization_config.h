// The quantization_config of a config.json: the packing of the tensors and its parameters. Used by
// tensor readers and for random weights; independent of tensors.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"
#include "kuiper/ops/weight_format.h"

namespace kuiper {

struct QuantizationConfig {
  // How the tensors of a file store a matrix. Each packing except the first has a reader in
  // packed_matrix.h.
  enum class Packing : uint8_t { kNone, kAwq, kGptq, kCompressedTensors, kE4M3Blocks };

  Packing packing = Packing::kNone;
  WeightFormat::Kind kind = WeightFormat::Kind::kF32;
  int group_columns = 0;  // columns per group; 0: a row is one group
  int group_rows = 1;
  bool is_symmetric = true;  // all zero points are the middle code, stored or not
  int zero_offset = 0;       // added to stored zero points, within their own bits
  // Modules that stay dense, as the file names them, and those that are quantised. Without targets,
  // all others are quantised. See Excludes.
  std::vector<std::string> excluded, targets;
  bool has_other_rules = false;  // some modules follow rules that are not supported here

  // Returns the format of a matrix with `in` columns.
  WeightFormat FormatOf(int64_t in, DType scale_type) const;
  // Returns "4 bits and group_size 128", for messages.
  std::string Describe() const;
};

enum class Exclusion { kNo, kYes, kUnknown };
// kYes if `module` ("model.layers.0.mlp.up_proj") stays dense: it is excluded, or there are targets
// and it is not one of them. A pattern is the module's name, the class "Linear" or, after "re:", a
// regular expression of literals, '.', '*', '+', '^' and '$'. kUnknown for other expressions, and
// for parts of the name and classes that contain the module ("Qwen3MLP"): programs disagree about
// whether these match the module.
Exclusion Excludes(const QuantizationConfig& config, std::string_view module);

// Returns kModel, with one line that names the key, if a kind of quantisation is not supported.
StatusOr<QuantizationConfig> ParseQuantization(const JsonNode& quantization_config);

}  // namespace kuiper
