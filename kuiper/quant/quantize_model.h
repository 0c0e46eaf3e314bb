// A Hugging Face directory in, a quantised one out, layer by layer within the memory of one layer.
// A run that was ended, even by a kill, continues where it was when it is called again: each layer
// is a file of its own, which appears when it is whole, until all layers are moved into shards.
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
  // The text for which errors of outputs are kept small, as ids; empty: values are rounded to the
  // nearest code and nothing else is done.
  std::vector<int32_t> text;
  int num_threads = 0;  // 0 = one per usable core
  // What is done of all work, from 0 to 1; called often.
  std::function<void(double done)> progress = {};
  // After each layer, in order; also for those that an earlier call wrote, of which only `layer`
  // and `error` are known.
  std::function<void(const LayerReport& report, int num_layers)> on_layer = {};
};

struct QuantizeResult {
  int group_size = 0;
  int64_t source_bytes = 0, written_bytes = 0;  // of weights
};

// All linear layers of the decoder's layers become codes; embedding, head and norms stay what they
// are (norms may take up scales). What else lies in the directory, but for weights in other forms,
// is copied, and config.json says how the weights are stored.
//
// A group size of 0 becomes the largest that the inputs of all these layers are multiples of.
//
// kModel for a source that is no such directory, is quantised already or does not fit the scheme;
// kInvalidArgument for a scheme that its format does not have, and for an output that is not empty
// or was begun with other options; kInternal for an output that cannot be written.
StatusOr<QuantizeResult> QuantizeModel(const std::string& source, const std::string& output,
                                       const QuantizeOptions& options);

// A text for models of which nothing else is known: prose, dialogue, code, numbers, several
// languages.
extern const char kCalibrationText[];

}  // namespace kuiper
