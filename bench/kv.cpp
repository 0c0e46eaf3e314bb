#include "bench/kv.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>

namespace kuiper::tools {
namespace {

constexpr int kFillTokens = 256;  // tokens that are stored at a time

StatusOr<Buffer> ToDevice(ComputeDevice& device, const std::vector<int32_t>& values) {
  KU_ASSIGN_OR_RETURN(Buffer buffer, device.Allocate(values.size() * sizeof(int32_t)));
  const auto count = static_cast<int64_t>(values.size());
  device.Upload(buffer.As(DType::kI32, {count}),
                Tensor::Dense(const_cast<int32_t*>(values.data()), DType::kI32, {count}));
  device.Sync();
  return buffer;
}

}  // namespace

int KvLoad::pages_per_sequence() const {
  return paged() ? (context + page_size - 1) / page_size : 1;
}

KvShape ShapeOf(const DecoderConfig& d, KvFormat format, const KvLoad& load) {
  return {.layers = d.layers,
          .kv_heads = d.kv_heads,
          .head_dim = d.head_dim,
          .num_pages = static_cast<int>(load.num_pages()),
          .page_size = load.paged() ? load.page_size : load.context,
          .format = format};
}

bool FitsMemory(const ComputeDevice& device, const DecoderConfig& d, KvFormat format,
                const KvLoad& load) {
  const KvShape one =
      ShapeOf(d, format, {.context = load.context, .batch = 1, .page_size = load.page_size});
  return static_cast<size_t>(load.num_pages()) <= device.FreeBytes() / one.page_bytes();
}

std::vector<int32_t> BlockTables(const KvLoad& load) {
  const size_t columns = load.pages_per_sequence();
  std::vector<int32_t> pages(static_cast<size_t>(load.num_pages()) - 1);
  std::iota(pages.begin(), pages.end(), 1);
  std::vector<int32_t> tables;
  if (load.shuffled) std::shuffle(pages.begin(), pages.end(), std::mt19937(1));
  for (int s = 0; s < load.batch; ++s) {
    for (size_t i = 0; i < columns; ++i) tables.push_back(pages[i * load.batch + s]);
  }
  return tables;
}

Status FillKv(Ops& ops, const DecoderConfig& d, const KvCache& kv) {
  ComputeDevice& device = ops.device();
  const KvShape& shape = kv.shape();
  const int tokens = std::min(shape.page_size, kFillTokens);
  std::vector<int32_t> slots(static_cast<size_t>(shape.num_pages - 1) * shape.page_size);
  std::iota(slots.begin(), slots.end(), shape.page_size);
  KU_ASSIGN_OR_RETURN(const Buffer device_slots, ToDevice(device, slots));
  KU_ASSIGN_OR_RETURN(const Buffer no_tables, ToDevice(device, {0}));
  KU_ASSIGN_OR_RETURN(const Buffer memory, device.Allocate(2 * sizeof(float) * tokens *
                                                           static_cast<size_t>(d.kv_size())));
  const Tensor rows = memory.As(DType::kF32, {2 * tokens, d.kv_size()});
  ops.Run(FillRandomArgs{.out = rows, .seed = 1});
  const auto num_slots = static_cast<int64_t>(slots.size());
  const Tensor all = device_slots.As(DType::kI32, {num_slots});
  for (int layer = 0; layer < d.layers; ++layer) {
    const KvView view = kv.View(layer, no_tables.As(DType::kI32, {1, 1}));
    for (int64_t first = 0; first < num_slots; first += tokens) {
      const int64_t n = std::min<int64_t>(tokens, num_slots - first);
      Tensor some = all;
      some.data = all.ptr<int32_t>() + first;
      some.shape[0] = n;
      ops.Run(StoreKvArgs{
          .kv = view, .k = rows.Rows(0, n), .v = rows.Rows(tokens, tokens + n), .slots = some});
    }
  }
  device.Sync();
  return OkStatus();
}

OpsLimits DecodeAttention::Limits(const DecoderConfig& d, int context, int batch) {
  OpsLimits limits;
  limits.max_tokens = limits.max_seqs = batch;
  limits.max_features = d.q_size();
  limits.max_context = context;
  return limits;
}

StatusOr<std::unique_ptr<DecodeAttention>> DecodeAttention::Make(Ops& ops, const DecoderConfig& d,
                                                                 DType weights, KvFormat format,
                                                                 const KvLoad& load) {
  const KvShape shape = ShapeOf(d, format, load);
  std::unique_ptr<DecodeAttention> a(new DecodeAttention(
      ops, static_cast<double>(shape.token_bytes()) * load.context * load.batch));
  ComputeDevice& device = ops.device();
  KU_ASSIGN_OR_RETURN(a->kv_, load.paged() ? MakePagedKvCache(device, shape)
                                           : MakeContiguousKvCache(device, shape));
  KU_RETURN_IF_ERROR(a->kv_->EnsurePages(shape.num_pages));
  KU_RETURN_IF_ERROR(FillKv(ops, d, *a->kv_));
  const int batch = load.batch;
  std::vector<int32_t> cu_seqlens(batch + 1);
  std::iota(cu_seqlens.begin(), cu_seqlens.end(), 0);
  KU_ASSIGN_OR_RETURN(a->tables_, ToDevice(device, BlockTables(load)));
  KU_ASSIGN_OR_RETURN(a->cu_seqlens_, ToDevice(device, cu_seqlens));
  KU_ASSIGN_OR_RETURN(a->lens_, ToDevice(device, std::vector<int32_t>(batch, load.context)));
  const DType type = ops.ActivationType(weights);
  const size_t q_bytes = DTypeBytes(type) * batch * static_cast<size_t>(d.q_size());
  KU_ASSIGN_OR_RETURN(a->q_, device.Allocate(q_bytes));
  KU_ASSIGN_OR_RETURN(a->out_, device.Allocate(q_bytes));
  const Tensor q = a->q_.As(type, {batch, d.q_size()});
  const Tensor tables = a->tables_.As(DType::kI32, {batch, load.pages_per_sequence()});
  ops.Run(FillRandomArgs{.out = q, .seed = 0});
  AttnMeta meta;
  meta.cu_seqlens_q = a->cu_seqlens_.As(DType::kI32, {batch + 1});
  meta.kv_lens = a->lens_.As(DType::kI32, {batch});
  meta.num_seqs = batch;
  meta.max_q_len = 1;
  meta.max_kv_len = load.context;
  KU_ASSIGN_OR_RETURN(a->step_, device.Capture([&] {
    for (int layer = 0; layer < d.layers; ++layer) {
      ops.Run(AttentionArgs{.out = a->out_.As(type, {batch, d.q_size()}),
                            .q = q,
                            .kv = a->kv_->View(layer, tables),
                            .meta = meta,
                            .scale = 1 / std::sqrt(static_cast<float>(d.head_dim))});
    }
  }));
  device.Sync();
  return a;
}

Status DecodeAttention::Run(int n) {
  for (int i = 0; i < n; ++i) step_->Replay();
  ops_.device().Sync();
  return OkStatus();
}

}  // namespace kuiper::tools
