// A float model that runs a text layer by layer. Only one layer's weights are in memory at a time;
// between layers, only the residual stream of the text is kept.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kuiper/base/buffer.h"
#include "kuiper/base/status.h"
#include "kuiper/kv/kv_cache.h"
#include "kuiper/model/batch.h"
#include "kuiper/model/model.h"
#include "kuiper/ops/ops.h"

namespace kuiper {

class LayerwiseModel {
 public:
  // The text [T] is split into independent pieces of up to kPiece tokens. `ops` must be for the CPU
  // and outlive the model. Returns the errors of OpenModel and LoadModel, and kInput for an id
  // outside the vocabulary.
  static StatusOr<std::unique_ptr<LayerwiseModel>> Open(const std::string& path,
                                                        std::vector<int32_t> text, Ops& ops);
  static constexpr int kPiece = 512;

  const DecoderConfig& config() const { return model_->decoder().config(); }
  int64_t num_tokens() const { return static_cast<int64_t>(text_.size()); }
  // Runs the text through the next layer and releases the pages of its weights. `probe` gets the
  // inputs of its linear layers, piece by piece, in FP32.
  void RunNext(const LinearProbe& probe = {});

 private:
  explicit LayerwiseModel(Ops& ops) : ops_(ops) {}
  Status Prepare();
  Batch PieceBatch(int64_t begin, int count);
  void ReleaseLayer();

  Ops& ops_;
  std::unique_ptr<Model> model_;
  std::vector<int32_t> text_;
  int next_layer_ = 0;
  std::vector<float> residual_;  // [T, hidden]
  Activations act_;
  std::unique_ptr<KvCache> kv_;  // for one layer
  std::vector<int32_t> arrays_;  // arrays of the batch
};

}  // namespace kuiper
