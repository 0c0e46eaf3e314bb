// What config.json says of quantised weights (quantization_config): which packing their tensors
// have and by which numbers. Readers of tensors and made-up weights ask it; it knows no tensor.
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
  // How tensors of a file hold a matrix; each but the first has a reader in packed_matrix.h.
  enum class Packing : uint8_t { kNone, kAwq, kGptq, kCompressedTensors, kE4M3Blocks };

  Packing packing = Packing::kNone;
  WeightFormat::Kind kind = WeightFormat::Kind::kF32;
  int group_columns = 0;  // 0: a row is one group
  int group_rows = 1;
  bool is_symmetric = true;  // zeros are the middle code, stored or not
  int zero_offset = 0;       // to add to stored zeros, within their own bits
  // Modules that stay dense, as the file names them, and those that do not; no target: all others.
  // See Excludes.
  std::vector<std::string> excluded, targets;
  bool has_other_rules = false;  // some modules follow rules that are not read here

  // Of a matrix with `in` columns.
  WeightFormat FormatOf(int64_t in, DType scale_type) const;
  // "4 bits and group_size 128", for messages.
  std::string Describe() const;
};

enum class Exclusion { kNo, kYes, kUnknown };
// Whether `module` ("model.layers.0.mlp.up_proj") stays dense: it is excluded, or there are targets
// and it is none. A pattern is its name, the class "Linear" or, after "re:", a regular expression
// of literals, '.', '*', '+', '^' and '$'. Unknown: other expressions, and parts of the name and
// classes of what holds the module ("Qwen3MLP"), which some programs take for the module and others
// do not.
Exclusion Excludes(const QuantizationConfig& config, std::string_view module);

// kModel with one line that names the key when a kind of quantisation is not supported.
StatusOr<QuantizationConfig> ParseQuantization(const JsonNode& quantization_config);

}  // namespace kuiper
