// Runs step plans on a model. Owns the KV storage, the working memory, the batch arrays and the
// sampler. Independent of requests, text and the owners of pages. A step is launched, and its
// tokens are taken later; on a device the next step can be launched in between.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/engine/batch_builder.h"
#include "kuiper/engine/decode_graph.h"
#include "kuiper/engine/sampler.h"
#include "kuiper/engine/step_plan.h"
#include "kuiper/kv/kv_cache.h"
#include "kuiper/model/decoder.h"
#include "kuiper/ops/ops.h"

namespace kuiper {

class ModelRunner {
 public:
  struct Config {
    KvShape kv;  // num_pages includes the null page
    bool paged = true;
    int max_context = 0;
    int max_seqs = 1;
    int max_step_tokens = 512;
    int max_outputs = 1;  // logits rows of one step, at most
    int max_samples = 1;  // logits rows of one step that choose a token, at most
    int num_axes = 1;     // axes of positions
    int vocab_limit = 0;
    bool use_graph = false;
    bool cascade = false;    // attention reads pages that sequences of a step share once
    bool quantized = false;  // the model has quantised layers
    OpsLimits others = {};   // limits of other work on the same Ops
  };
  // Returns the rows of an embedding source, as in RowOverride::rows; empty if there is no such
  // source.
  using FindRows = std::function<Tensor(int64_t source)>;
  // Returns what the largest step needs from Ops, for Reserve and for the memory plan.
  static OpsLimits LimitsOf(const DecoderConfig& model, const Config& config);
  // Returns the size of the step arrays that Create allocates: everything except activations, the
  // scratch memory of Ops and the KV cache.
  static MemorySize ArraySize(const DecoderConfig& model, const Config& config);
  // `ops` and `decoder` must outlive the runner. Without `find_rows` plans must have no patches.
  static StatusOr<std::unique_ptr<ModelRunner>> Create(Ops& ops, const Decoder& decoder,
                                                       const Config& config,
                                                       FindRows find_rows = {});
  ~ModelRunner() { ops_.device().Sync(); }

  // Returns an error if Launch could not run the plan; for plans from outside our scheduler.
  Status Check(const StepPlan& plan) const;
  // Call before the first plan: computes a piece of a prompt and decode steps of 1, 2, 4 ...
  // sequences. Then no request waits while kernels are loaded or a step is captured. Overwrites
  // page 1.
  Status WarmUp();
  // Receives the residual stream [hidden] of one of plan.hidden_rows after a layer; `row` is a row
  // of the batch.
  using HiddenVisitor = std::function<void(int layer, int row, std::span<const float> values)>;
  // Enqueues the step and returns its step buffer index, for Take. First waits for the step that
  // last used this buffer, kMaxStepsInFlight launches ago, whether it was taken or not. If the plan
  // has hidden rows, waits for this step too, and passes them to `visit` layer by layer.
  int Launch(const StepPlan& plan, const HiddenVisitor& visit = {});
  // Waits for a launched step and returns its tokens.
  StepResult Take(int flight);
  // Returns row `row` of the logits of the last launched step, [vocab] f32, valid until the next
  // call.
  const float* HostLogits(int row);
  // Repeats a plan that was taken, without its page copies, and finds the first layer whose
  // residual stream has a NaN or infinity. Returns nullopt if all layers are finite: then the LM
  // head is the cause. Overwrites the logits.
  std::optional<int> FirstNonFiniteLayer(StepPlan plan);

  const DecoderConfig& model() const { return decoder_.config(); }
  int vocab_limit() const { return config_.vocab_limit; }
  // A page must be usable before a plan writes to it.
  KvCache& kv() { return *kv_; }
  const KvCache& kv() const { return *kv_; }
  const BatchBuilder& batch_builder() const { return *builder_; }
  const DecodeGraph& graph() const { return graph_; }

 private:
  ModelRunner(Ops& ops, const Decoder& decoder, const Config& config, FindRows find_rows)
      : ops_(ops),
        decoder_(decoder),
        config_(config),
        find_rows_(std::move(find_rows)),
        graph_(ops.device(), config.max_seqs, config.paged) {}
  int NextFlight();
  PlanLimits Limits() const;
  // Returns the plan's embedding overrides in batch rows; kInvalidArgument if a source has too few
  // rows.
  StatusOr<std::vector<RowOverride>> OverridesOf(const StepPlan& plan) const;
  void VisitHidden(const StepPlan& plan, int layer, Tensor residual, const HiddenVisitor& visit);
  void CopyPages(const StepPlan& plan, const Batch& batch);

  Ops& ops_;
  const Decoder& decoder_;
  Config config_;
  FindRows find_rows_;
  std::unique_ptr<KvCache> kv_;
  Activations act_;
  std::unique_ptr<BatchBuilder> builder_;
  std::unique_ptr<Sampler> sampler_;
  DecodeGraph graph_;
  // Event at the end of the step in each step buffer; absent once the host has waited for it.
  std::array<std::optional<int64_t>, kMaxStepsInFlight> marks_;
  int next_flight_ = 0;
  Buffer host_row_;  // one row of logits, or of the residual stream
};

}  // namespace kuiper
