// A loaded model: configuration, weights on their device, and the decoder and vision encoder that
// use them. The engine plans memory from the opened model first, then calls LoadModel.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kuiper/base/buffer.h"
#include "kuiper/base/status.h"
#include "kuiper/model/config.h"
#include "kuiper/model/decoder.h"
#include "kuiper/model/opened_model.h"
#include "kuiper/model/vision_encoder.h"
#include "kuiper/model/weight_source.h"
#include "kuiper/ops/ops.h"

namespace kuiper {

struct LoadOptions {
  int max_context = 0;  // positions that the RoPE table covers; 0 = the model's limit
  WeightOptions weights;
  MappedWeights mapped = MappedWeights::kRead;
  int num_threads = 1;         // threads that copy weights
  bool warn_of_unused = true;  // warn about tensors that the configuration does not name
  std::function<void(int64_t bytes_done, int64_t bytes_total)> progress;
};

class Model;

// `ops` must outlive the model. Returns kModel if the files do not hold the weights of their
// config.json.
StatusOr<std::unique_ptr<Model>> LoadModel(OpenedModel opened, Ops& ops,
                                           const LoadOptions& options);

class Model {
 public:
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const ModelConfig& config() const { return opened_.config; }
  const GenerationConfig& generation() const { return opened_.generation; }
  const Decoder& decoder() const { return *decoder_; }
  // Null if the model has no vision encoder.
  VisionEncoder* vision() const { return vision_.get(); }
  // Tokens that end an answer: those of generation_config.json, then those of config.json.
  std::vector<int32_t> eos() const;

  // Memory of all weights; tied embeddings count once.
  int64_t weight_bytes() const { return weight_bytes_; }
  // Bytes that one decode step reads: all weights except the embedding table, unless it is also the
  // LM head.
  int64_t decode_bytes() const { return decode_bytes_; }
  int64_t file_bytes() const { return opened_.source->file_bytes(); }
  // WeightSource::ChangedFile, or "" if no weight is used from its mapped file.
  std::string ChangedFile() const { return in_files_ ? opened_.source->ChangedFile() : ""; }
  // The source of the weights; on the CPU some weights are views into it.
  WeightSource& source() { return *opened_.source; }

 private:
  friend StatusOr<std::unique_ptr<Model>> LoadModel(OpenedModel, Ops&, const LoadOptions&);
  Model() = default;

  OpenedModel opened_;           // on the CPU the weights are views into its files
  std::vector<Buffer> buffers_;  // uploaded or converted weights, RoPE table
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<VisionEncoder> vision_;
  bool in_files_ = false;
  int64_t weight_bytes_ = 0;
  int64_t decode_bytes_ = 0;
};

}  // namespace kuiper
