// Runs step plans on a model: owns the KV storage, the working memory, the batch arrays and the
// sampler. It knows nothing of requests, text or who owns which page. A step is launched and its
// tokens are taken later; on a device the step after it can be launched before that.
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
    int max_outputs = 1;  // rows of logits one step may ask for
    int max_samples = 1;  // those of them that choose a token
    int num_axes = 1;     // of positions
    int vocab_limit = 0;
    bool use_graph = false;
    bool cascade = false;    // attention reads pages that sequences of a step share once
    bool quantized = false;  // layers of the model are
    OpsLimits others = {};   // what else runs on the same Ops
  };
  // The rows of a source of patches, as RowPatch::rows has them; empty: there is no such source.
  using FindRows = std::function<Tensor(int64_t source)>;
  // What the largest step needs of Ops; for Reserve and for the memory plan.
  static OpsLimits LimitsOf(const DecoderConfig& model, const Config& config);
  // What Create allocates for the arrays of a step: everything but activations, the scratch memory
  // of Ops and the KV cache.
  static MemorySize ArraySize(const DecoderConfig& model, const Config& config);
  // `ops` and `decoder` must outlive the runner. Without `find_rows` no plan is patched.
  static StatusOr<std::unique_ptr<ModelRunner>> Create(Ops& ops, const Decoder& decoder,
                                                       const Config& config,
                                                       FindRows find_rows = {});
  ~ModelRunner() { ops_.device().Sync(); }

  // Why Launch could not carry the plan out; for plans that do not come from our own scheduler.
  Status Check(const StepPlan& plan) const;
  // Before the first plan: computes a piece of a prompt and decode steps of 1, 2, 4 ... sequences,
  // so that no request waits until kernels are loaded or a step is recorded. Overwrites page 1.
  Status WarmUp();
  // One of plan.hidden_rows: the residual stream [hidden] behind a layer; `row` is a row of the
  // batch.
  using HiddenVisitor = std::function<void(int layer, int row, std::span<const float> values)>;
  // Enqueues the step and returns its flight, for Take; waits for the step that had the flight,
  // kMaxStepsInFlight launches ago, whether it was taken or not. A plan with hidden rows is waited
  // for, and `visit` gets them layer by layer.
  int Launch(const StepPlan& plan, const HiddenVisitor& visit = {});
  // Waits for a launched step.
  StepResult Take(int flight);
  // Row `row` of the logits of the step launched last, [vocab] f32, valid until the next call.
  const float* HostLogits(int row);
  // Repeats a plan that was taken, without its copies of pages, and looks for the first layer whose
  // residual stream has a NaN or infinity; nullopt when all layers are finite (the head is to
  // blame). Logits are overwritten.
  std::optional<int> FirstNonFiniteLayer(StepPlan plan);

  const DecoderConfig& model() const { return decoder_.config(); }
  int vocab_limit() const { return config_.vocab_limit; }
  // A page must be usable before a plan that writes to it.
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
  // Of the whole batch; kInvalidArgument when a source lacks the rows.
  StatusOr<std::vector<RowPatch>> PatchesOf(const StepPlan& plan) const;
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
  // End of the step in each flight; absent when the host has waited for it.
  std::array<std::optional<int64_t>, kMaxStepsInFlight> marks_;
  int next_flight_ = 0;
  Buffer host_row_;  // one row of logits, or of the residual stream
};

}  // namespace kuiper
