#include "test/model/forward_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace kuiper::test {

ForwardRunner::ForwardRunner(Ops& ops, const Decoder& decoder, int max_tokens,
                             const RunnerOptions& options)
    : ops_(ops), decoder_(decoder), max_tokens_(max_tokens), options_(options) {
  const DecoderConfig& c = decoder.config();
  const int pages = options.paged ? (max_tokens + options.page_size - 1) / options.page_size : 1;
  KvShape shape;
  shape.layers = c.layers;
  shape.kv_heads = c.kv_heads;
  shape.head_dim = c.head_dim;
  shape.num_pages = pages + 1;  // page 0 is the null page
  shape.page_size = options.paged ? options.page_size : max_tokens;
  shape.format = KvFormat::Of(options.kv_dtype);
  auto kv = options.paged ? MakePagedKvCache(ops.device(), shape)
                          : MakeContiguousKvCache(ops.device(), shape);
  KU_CHECK(kv.ok(), kv.status().message());
  kv_ = std::move(kv).value();
  KU_CHECK(kv_->EnsurePages(shape.num_pages).ok());
  table_.resize(pages);
  std::iota(table_.begin(), table_.end(), 1);
  std::shuffle(table_.begin(), table_.end(), std::mt19937(7));

  OpsLimits limits;
  limits.max_tokens = max_tokens;
  limits.max_seqs = max_tokens;
  limits.max_features = std::max({c.hidden, c.q_size(), c.intermediate});
  limits.max_context = max_tokens;
  limits.vocab = c.vocab;
  KU_CHECK(ops.Reserve(limits).ok() && decoder.Prepare().ok());
  auto act = MakeActivations(ops, c, max_tokens, max_tokens);
  KU_CHECK(act.ok(), act.status().message());
  act_ = std::move(act).value();
}

Tensor ForwardRunner::Upload(const std::vector<int32_t>& values, std::vector<Buffer>& owner) {
  auto buffer = ops_.device().Allocate(values.size() * sizeof(int32_t));
  KU_CHECK(buffer.ok());
  const int64_t count = static_cast<int64_t>(values.size());
  const Tensor device = buffer->As(DType::kI32, {count});
  ops_.device().Upload(device,
                       Tensor::Dense(const_cast<int32_t*>(values.data()), DType::kI32, {count}));
  ops_.device().Sync();
  owner.push_back(std::move(buffer).value());
  return device;
}

std::vector<float> ForwardRunner::Append(std::span<const int32_t> tokens, const LayerProbe& probe) {
  const int count = static_cast<int>(tokens.size());
  KU_CHECK(length_ + count <= max_tokens_);
  std::vector<int32_t> positions(count), slots(count), rows(count);
  std::iota(positions.begin(), positions.end(), length_);
  std::iota(rows.begin(), rows.end(), 0);
  const int page_size = kv_->shape().page_size;
  for (int i = 0; i < count; ++i) {
    slots[i] = table_[positions[i] / page_size] * page_size + positions[i] % page_size;
  }
  length_ += count;

  std::vector<Buffer> owner;
  const auto as_row = [](Tensor t) {
    return Tensor::Dense(t.data, t.dtype, {1, t.shape[0]}, t.device);
  };
  Batch batch;
  batch.num_tokens = count;
  batch.num_seqs = 1;
  batch.num_outputs = count;
  batch.token_ids = Upload({tokens.begin(), tokens.end()}, owner);
  batch.positions = as_row(Upload(positions, owner));
  batch.slots = Upload(slots, owner);
  batch.block_tables = as_row(Upload(table_, owner));
  batch.attn.cu_seqlens_q = Upload({0, count}, owner);
  batch.attn.kv_lens = Upload({length_}, owner);
  batch.attn.num_seqs = 1;
  batch.attn.max_q_len = count;
  batch.attn.max_kv_len = length_;
  batch.output_rows = Upload(rows, owner);
  decoder_.Forward(batch, *kv_, act_, probe);

  const int64_t vocab = decoder_.config().vocab;
  std::vector<float> logits(static_cast<size_t>(count * vocab));
  ops_.device().Download(Tensor::Dense(logits.data(), DType::kF32, {count, vocab}),
                         act_.logits.Rows(0, count));
  ops_.device().Sync();
  return logits;
}

}  // namespace kuiper::test
