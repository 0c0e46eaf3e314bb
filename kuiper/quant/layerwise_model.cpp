#include "kuiper/quant/layerwise_model.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kuiper/base/check.h"
#include "kuiper/quant/input_statistics.h"

namespace kuiper {
namespace {

constexpr int32_t kRow = 1;  // cache row; rows are numbered from 1

}  // namespace

StatusOr<std::unique_ptr<LayerwiseModel>> LayerwiseModel::Open(const std::string& path,
                                                               std::vector<int32_t> text,
                                                               Ops& ops) {
  KU_CHECK(!text.empty());
  std::unique_ptr<LayerwiseModel> model(new LayerwiseModel(ops));
  KU_ASSIGN_OR_RETURN(OpenedModel opened, OpenModel(path));
  LoadOptions options;
  // Only text runs through the layers.
  options.warn_of_unused = !opened.config.vision.has_value();
  opened.config.vision.reset();
  options.mapped = MappedWeights::kLeave;
  options.max_context = std::min(kPiece, opened.config.decoder.rope.max_position);
  for (const int32_t id : text) {
    if (id >= 0 && id < opened.config.decoder.vocab) continue;
    return Status(StatusCode::kInput, "the text has the token " + std::to_string(id) +
                                          ", which the model does not have");
  }
  KU_ASSIGN_OR_RETURN(model->model_, LoadModel(std::move(opened), ops, options));
  model->text_ = std::move(text);
  KU_RETURN_IF_ERROR(model->Prepare());
  return model;
}

Status LayerwiseModel::Prepare() {
  const DecoderConfig& c = config();
  const int piece = std::min(kPiece, c.rope.max_position);
  OpsLimits limits;
  limits.max_tokens = std::max<int>(piece, InputStatistics::kMaxSamples);
  limits.max_seqs = 1;
  limits.max_features = std::max({c.hidden, c.q_size(), c.intermediate});
  limits.max_context = piece;
  limits.vocab = c.vocab;
  KU_RETURN_IF_ERROR(ops_.Reserve(limits));
  KU_ASSIGN_OR_RETURN(act_, MakeActivations(ops_, c, piece, 1));
  KU_CHECK(act_.x.dtype == DType::kF32, "the CPU's activations are FP32");
  KvShape shape;
  shape.layers = 1;
  shape.kv_heads = c.kv_heads;
  shape.head_dim = c.head_dim;
  shape.num_pages = kRow + 1;
  shape.page_size = piece;
  shape.format = KvFormat::Of(DType::kF32);
  KU_ASSIGN_OR_RETURN(kv_, MakeContiguousKvCache(ops_.device(), shape));
  KU_RETURN_IF_ERROR(kv_->EnsurePages(shape.num_pages));
  residual_.resize(static_cast<size_t>(num_tokens()) * c.hidden);
  return OkStatus();
}

// The arrays of one sequence: ids, positions and slots [count] each, then its cache row, [0, count]
// and count.
Batch LayerwiseModel::PieceBatch(int64_t begin, int count) {
  arrays_.assign(text_.begin() + begin, text_.begin() + begin + count);
  for (const int32_t first : {0, kRow * kv_->shape().page_size}) {
    const size_t at = arrays_.size();
    arrays_.resize(at + count);
    std::iota(arrays_.begin() + static_cast<std::ptrdiff_t>(at), arrays_.end(), first);
  }
  const size_t rest = arrays_.size();
  arrays_.insert(arrays_.end(), {kRow, 0, count, count});
  const auto array = [&](size_t at, std::initializer_list<int64_t> shape) {
    return Tensor::Dense(arrays_.data() + at, DType::kI32, shape);
  };
  const size_t n = static_cast<size_t>(count);
  Batch batch;
  batch.num_tokens = count;
  batch.num_seqs = 1;
  batch.token_ids = array(0, {count});
  batch.positions = array(n, {1, count});
  batch.slots = array(2 * n, {count});
  batch.block_tables = array(rest, {1, 1});
  batch.attn.cu_seqlens_q = array(rest + 1, {2});
  batch.attn.kv_lens = array(rest + 3, {1});
  batch.attn.num_seqs = 1;
  batch.attn.max_q_len = count;
  batch.attn.max_kv_len = count;
  return batch;
}

void LayerwiseModel::ReleaseLayer() {
  const LayerWeights& layer = model_->decoder().weights().layers[next_layer_];
  for (const Linear* linear : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down}) {
    for (int i = 0; i < linear->num_parts; ++i) {
      const Tensor& values = linear->parts[i].weight.values;
      model_->source().DontNeed(values.data, static_cast<size_t>(values.bytes()));
    }
  }
}

void LayerwiseModel::RunNext(const LinearProbe& probe) {
  KU_CHECK(next_layer_ < config().layers);
  const int64_t hidden = config().hidden;
  for (int64_t begin = 0; begin < num_tokens(); begin += act_.max_tokens) {
    const int count = static_cast<int>(std::min<int64_t>(act_.max_tokens, num_tokens() - begin));
    const Batch batch = PieceBatch(begin, count);
    float* kept = residual_.data() + begin * hidden;
    float* residual = act_.residual.ptr<float>();
    if (next_layer_ == 0) {
      model_->decoder().Embed(batch, act_);
    } else {
      std::copy(kept, kept + count * hidden, residual);
    }
    model_->decoder().RunLayer(next_layer_, batch, kv_->View(0, batch.block_tables), act_,
                               [&](LayerLinear linear, Tensor x) {
                                 ops_.device().Sync();
                                 if (probe) probe(linear, x);
                               });
    ops_.device().Sync();
    std::copy(residual, residual + count * hidden, kept);
  }
  ReleaseLayer();
  ++next_layer_;
}

}  // namespace kuiper
