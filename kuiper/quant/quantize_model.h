// Quantises a Hugging Face directory into another, layer by layer, with memory for one layer. If a
// run is stopped or killed, the next call with the same arguments continues it. Each layer has its
// own file, which appears when it is complete; at the end all layers are moved into shards.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/quant/layer.h"

namespace kuiper {

struct QuantizeOptions {
  QuantizationScheme scheme;
  // Calibration text as ids, for which output errors are minimised. If empty, values are just
  // rounded to the nearest code.
  std::vector<int32_t> text;
  int num_threads = 0;  // 0 = one per usable core
  // Called often, with the share of all work that is done, from 0 to 1.
  std::function<void(double done)> progress = {};
  // Called after each layer, in order. For layers that an earlier call wrote, only `layer` and
  // `error` are set.
  std::function<void(const LayerReport& report, int num_layers)> on_layer = {};
};

struct QuantizeResult {
  int group_size = 0;
  int64_t source_bytes = 0, written_bytes = 0;  // size of the weights
};

// Quantises all linear layers of the decoder's layers. Embedding, LM head and norms are not
// quantised, but norms may absorb scales. Other files of the directory are copied, except weights
// in other formats. config.json describes how the weights are stored.
//
// If the group size is 0, the largest one that divides the inputs of all these layers is used.
//
// Returns kModel for a source that is not such a directory, is already quantised or does not fit
// the scheme. Returns kInvalidArgument for a scheme that its format does not support, and for an
// output that is not empty or was begun with other options. Returns kInternal if the output cannot
// be written.
StatusOr<QuantizeResult> QuantizeModel(const std::string& source, const std::string& output,
                                       const QuantizeOptions& options);

// The default calibration text: prose, dialogue, code, numbers, several languages.
extern const char kCalibrationText[];

}  // namespace kuiper
