#include "kuiper/model/vision_encoder.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include "kuiper/base/check.h"

namespace kuiper {
namespace {

constexpr float kNormEps = 1e-6f;  // also a constant in transformers

// [T, n] as [T / times, n * times].
Tensor Merged(const Tensor& x, int times) {
  return Tensor::Dense(x.data, x.dtype, {x.rows() / times, x.shape[1] * times}, x.device);
}

}  // namespace

VisionEncoder::VisionEncoder(VisionEncoderConfig config, VisionWeights weights, Ops& ops)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      ops_(&ops),
      activation_type_(ops.ActivationType(weights_.patch_embed.format().numeric_type())) {
  KU_CHECK(static_cast<int>(weights_.blocks.size()) == config_.depth &&
           static_cast<int>(weights_.deepstack.size()) == config_.num_deepstack());
}

MemorySize VisionEncoder::WorkspaceBytes(const VisionEncoderConfig& config, DType activation_type,
                                         int max_patches) {
  return VisionWorkspace::Bytes(config, activation_type, max_patches);
}

OpsLimits VisionEncoder::Limits(const VisionEncoderConfig& c, int max_patches) {
  OpsLimits limits;
  limits.max_tokens = VisionWorkspace::PanelRows(c, max_patches);
  limits.max_features = std::max({c.patch_values(), c.intermediate, c.merged_hidden()});
  limits.max_context = max_patches;
  return limits;
}

Status VisionEncoder::Reserve(int max_patches) {
  KU_CHECK(max_patches >= config_.merge_unit());
  space_ = VisionWorkspace();  // free the old memory first: both may not fit
  KU_ASSIGN_OR_RETURN(
      space_, VisionWorkspace::Make(ops_->device(), config_, activation_type_, max_patches));
  return Prepare();
}

Status VisionEncoder::Prepare() const {
  const auto prepare = [this](const Linear& linear, Epilogue epilogue, DType type) {
    return ops_->Prepare(linear, epilogue, type, OutputColumns(linear, epilogue));
  };
  constexpr DType kStream = DType::kF32;
  KU_RETURN_IF_ERROR(prepare(weights_.patch_embed, Epilogue::kStore, kStream));
  for (const VisionBlockWeights& w : weights_.blocks) {
    KU_RETURN_IF_ERROR(prepare(w.qkv, Epilogue::kStore, activation_type_));
    KU_RETURN_IF_ERROR(prepare(w.proj, Epilogue::kAdd, kStream));
    KU_RETURN_IF_ERROR(prepare(w.fc1, Epilogue::kGeluTanh, activation_type_));
    KU_RETURN_IF_ERROR(prepare(w.fc2, Epilogue::kAdd, kStream));
  }
  const auto prepare_merger = [&](const VisionMergerWeights& w) -> Status {
    KU_RETURN_IF_ERROR(prepare(w.fc1, Epilogue::kGeluErf, activation_type_));
    return ops_->Prepare(w.fc2, Epilogue::kStore, activation_type_,
                         int64_t{1 + num_deepstack()} * config_.out_hidden);
  };
  for (const VisionMergerWeights& w : weights_.deepstack) KU_RETURN_IF_ERROR(prepare_merger(w));
  return prepare_merger(weights_.merger);
}

Status VisionEncoder::CheckGrid(const VisionPatches& p) const {
  const std::string size = std::to_string(p.h) + "x" + std::to_string(p.w) + " patches";
  if (p.t < 1 || p.h < 1 || p.w < 1 || p.h % config_.merge != 0 || p.w % config_.merge != 0) {
    return Status(StatusCode::kInput, "a grid of " + size + " cannot be merged into tokens of " +
                                          std::to_string(config_.merge_unit()));
  }
  if (int64_t{p.h} * p.w > max_patches()) {
    return Status(StatusCode::kInput,
                  "a picture of " + size + " is larger than the memory for the vision tower, " +
                      std::to_string(max_patches()) + " patches",
                  "make the picture smaller");
  }
  return OkStatus();
}

Status VisionEncoder::Encode(const VisionPatches& patches, const Tensor& out,
                             const VisionProbe& probe, const VisionProgress& go_on) {
  KU_RETURN_IF_ERROR(CheckGrid(patches));
  const int64_t tokens = num_tokens(patches.t, patches.h, patches.w);
  const int64_t values = config_.patch_values();
  KU_CHECK(static_cast<int64_t>(patches.values.size()) == patches.num_patches() * values);
  KU_CHECK(out.rank == 3 && out.is_dense() && out.dtype == out_type() && out.shape[0] == tokens &&
           out.shape[1] == 1 + num_deepstack() && out.shape[2] == config_.out_hidden);
  const Tensor rows =
      Tensor::Dense(out.data, out.dtype, {tokens, out.shape[1] * out.shape[2]}, out.device);
  const int64_t per_frame = int64_t{patches.h} * patches.w;
  const auto most = static_cast<int>(max_patches() / per_frame);
  // On a device the host runs at most one layer ahead, because enqueued work cannot be stopped.
  std::optional<int64_t> last_asked;
  const auto may_go_on = [&](double done) {
    if (!go_on) return true;
    if (last_asked.has_value()) ops_->device().WaitFor(*last_asked);
    last_asked = ops_->device().Mark();
    return go_on(done);
  };
  for (int frame = 0; frame < patches.t;) {
    const Pass pass{std::min(most, patches.t - frame), patches.h, patches.w};
    const int64_t begin = frame * per_frame, end = begin + pass.patches();
    const auto go_on_with_pass = [&](double done) {
      return may_go_on((frame + done * pass.frames) / patches.t);
    };
    if (!RunPass(pass, patches.values.subspan(begin * values, pass.patches() * values),
                 rows.Rows(begin / config_.merge_unit(), end / config_.merge_unit()), probe,
                 go_on_with_pass)) {
      return Status(StatusCode::kUnavailable, "encoding of the image was stopped");
    }
    frame += pass.frames;
  }
  return OkStatus();
}

bool VisionEncoder::RunPass(const Pass& pass, std::span<const float> values, const Tensor& out,
                            const VisionProbe& probe, const VisionProgress& go_on) {
  const auto show = [&probe](VisionStage stage, int index, const Tensor& rows) {
    if (probe) probe(stage, index, rows);
  };
  const auto columns = [&](int index) {
    return out.Cols(int64_t{index} * config_.out_hidden, int64_t{index + 1} * config_.out_hidden);
  };
  Embed(pass, values, probe);
  int merged = 0;
  for (int i = 0; i < config_.depth; ++i) {
    if (!go_on(double{1} * i / config_.depth)) return false;
    RunBlock(weights_.blocks[i], pass);
    show(VisionStage::kBlock, i, space_.residual.Rows(0, pass.patches()));
    if (merged == num_deepstack() || config_.deepstack_blocks[merged] != i) continue;
    Merge(weights_.deepstack[merged], pass, columns(1 + merged));
    show(VisionStage::kDeepstack, merged, columns(1 + merged));
    ++merged;
  }
  if (!go_on(1)) return false;
  Merge(weights_.merger, pass, columns(0));
  show(VisionStage::kMerger, 0, columns(0));
  return true;
}

template <typename F>
void VisionEncoder::ForPanels(const Pass& pass, const F& f) const {
  for (int64_t begin = 0; begin < pass.patches(); begin += space_.panel_rows) {
    f(begin, std::min(pass.patches(), begin + space_.panel_rows));
  }
}

void VisionEncoder::Apply(const Tensor& out, const Tensor& x, const Linear& linear,
                          Epilogue epilogue) const {
  ops_->Run(
      ApplyArgs{.out = out, .x = x, .linear = linear, .epilogue = epilogue, .num_decode_rows = 0});
}

void VisionEncoder::Norm(const Tensor& out, const Tensor& x, const LayerNormWeights& w) const {
  ops_->Run(LayerNormArgs{.out = out, .x = x, .weight = w.weight, .bias = w.bias, .eps = kNormEps});
}

void VisionEncoder::Embed(const Pass& pass, std::span<const float> values,
                          const VisionProbe& probe) {
  const int64_t width = config_.patch_values();
  const Tensor residual = space_.residual.Rows(0, pass.patches());
  space_.UploadLayout(ops_->device(), config_, pass.frames, pass.h, pass.w);
  ForPanels(pass, [&](int64_t begin, int64_t end) {
    const Tensor patches = space_.UploadPatches(
        ops_->device(), values.subspan(begin * width, (end - begin) * width), end - begin);
    Apply(residual.Rows(begin, end), patches, weights_.patch_embed, Epilogue::kStore);
  });
  if (probe) probe(VisionStage::kPatches, 0, residual);
  ops_->Run(AddWeightedRowsArgs{.out = residual,
                                .table = weights_.positions,
                                .rows = space_.corners,
                                .weights = space_.weights});
  if (probe) probe(VisionStage::kEmbedding, 0, residual);
}

void VisionEncoder::RunBlock(const VisionBlockWeights& w, const Pass& pass) const {
  const Tensor &residual = space_.residual, &qkv = space_.qkv, &attn = space_.attn;
  ForPanels(pass, [&](int64_t begin, int64_t end) {
    const Tensor x = space_.x.Rows(0, end - begin);
    Norm(x, residual.Rows(begin, end), w.attn_norm);
    Apply(qkv.Rows(begin, end), x, w.qkv, Epilogue::kStore);
  });
  Attend(pass);
  ForPanels(pass, [&](int64_t begin, int64_t end) {
    const Tensor rows = residual.Rows(begin, end), x = space_.x.Rows(0, end - begin);
    const Tensor inner = space_.Wide(end - begin, config_.intermediate);
    Apply(rows, attn.Rows(begin, end), w.proj, Epilogue::kAdd);
    Norm(x, rows, w.mlp_norm);
    Apply(inner, x, w.fc1, Epilogue::kGeluTanh);
    Apply(rows, inner, w.fc2, Epilogue::kAdd);
  });
}

// The frames' keys and values form a contiguous KvView over qkv itself, one cache row per frame.
// The rotated keys are written back to where they were.
void VisionEncoder::Attend(const Pass& pass) const {
  const int64_t hidden = config_.hidden;
  const int head_dim = config_.head_dim(), per_frame = pass.h * pass.w;
  const Tensor qkv = space_.qkv.Rows(0, pass.patches());
  const Tensor q = qkv.Cols(0, hidden), k = qkv.Cols(hidden, 2 * hidden);
  const Tensor v = qkv.Cols(2 * hidden, 3 * hidden);
  KvView kv;
  kv.kind = KvView::Kind::kContiguous;
  kv.format = KvFormat::Of(activation_type_);
  kv.kv_heads = config_.heads;
  kv.base = k.data;
  kv.tables = space_.cache_rows.ptr<int32_t>();
  kv.table_stride = 1;
  kv.max_len = per_frame;
  kv.s = {.page_stride = 3 * hidden * per_frame,
          .head_stride = head_dim,
          .v_offset = hidden,
          .token_stride = static_cast<int32_t>(3 * hidden),
          .head_dim = head_dim};
  ops_->Run(QkNormRopeStoreArgs{.q = q,
                                .store = {.kv = kv, .k = k, .v = v, .slots = space_.slots},
                                .rope = space_.rope,
                                .positions = space_.positions});
  ops_->Run(AttentionArgs{.out = space_.attn.Rows(0, pass.patches()),
                          .q = q,
                          .kv = kv,
                          .meta = {.cu_seqlens_q = space_.cu_seqlens,
                                   .kv_lens = space_.kv_lens,
                                   .num_seqs = pass.frames,
                                   .max_q_len = per_frame,
                                   .max_kv_len = per_frame},
                          .scale = static_cast<float>(1.0 / std::sqrt(double{1} * head_dim)),
                          .options = {.causal = false}});
}

// Patches that become one token are in adjacent rows. The main merger normalises patches, a
// deepstack merger normalises merged rows.
void VisionEncoder::Merge(const VisionMergerWeights& w, const Pass& pass, const Tensor& out) const {
  const int unit = config_.merge_unit();
  const bool norms_merged = w.norm.weight.shape[0] != config_.hidden;
  ForPanels(pass, [&](int64_t begin, int64_t end) {
    const Tensor rows = space_.residual.Rows(begin, end), x = space_.x.Rows(0, end - begin);
    const Tensor inner = space_.Wide((end - begin) / unit, config_.merged_hidden());
    if (norms_merged) {
      Norm(Merged(x, unit), Merged(rows, unit), w.norm);
    } else {
      Norm(x, rows, w.norm);
    }
    Apply(inner, Merged(x, unit), w.fc1, Epilogue::kGeluErf);
    Apply(out.Rows(begin / unit, end / unit), inner, w.fc2, Epilogue::kStore);
  });
}

}  // namespace kuiper
