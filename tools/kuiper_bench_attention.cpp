// Decode attention alone: one query per sequence over keys and values of all layers, one layer
// after the other as in a decode step, so that caches hold as little as they do there.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <vector>

#include "kuiper/kv/kv_cache.h"
#include "kuiper/ops/ops.h"
#include "tools/kuiper_bench_scenarios.h"

namespace kuiper::tools {
namespace {

constexpr int kPageSize = 16;
constexpr int kFillTokens = 256;  // that are stored together

StatusOr<Buffer> ToDevice(ComputeDevice& device, const std::vector<int32_t>& values) {
  KU_ASSIGN_OR_RETURN(Buffer buffer, device.Allocate(values.size() * sizeof(int32_t)));
  const auto count = static_cast<int64_t>(values.size());
  device.Upload(buffer.As(DType::kI32, {count}),
                Tensor::Dense(const_cast<int32_t*>(values.data()), DType::kI32, {count}));
  device.Sync();
  return buffer;
}

// A cache of random keys and values, and what a decode step needs to read it.
struct DecodeBatch {
  std::unique_ptr<KvCache> kv;
  Buffer tables, cu_seqlens, lens, q_memory, out_memory;
  Tensor block_tables, q, out;
  AttnMeta meta;
};

KvShape ShapeOf(const DecoderConfig& d, KvFormat format, bool paged, int context, int batch) {
  const int pages = (context + kPageSize - 1) / kPageSize;
  return {.layers = d.layers,
          .kv_heads = d.kv_heads,
          .head_dim = d.head_dim,
          .num_pages = 1 + (paged ? batch * pages : batch),
          .page_size = paged ? kPageSize : context,
          .format = format};
}

// Fills all layers with the same random keys and values, a page's worth after the other.
Status Fill(Ops& ops, const DecoderConfig& d, const KvCache& kv, const Tensor& block_tables) {
  ComputeDevice& device = ops.device();
  const KvShape& shape = kv.shape();
  const int tokens = std::min(shape.page_size, kFillTokens);
  std::vector<int32_t> slots(static_cast<size_t>(shape.num_pages - 1) * shape.page_size);
  std::iota(slots.begin(), slots.end(), shape.page_size);
  KU_ASSIGN_OR_RETURN(const Buffer device_slots, ToDevice(device, slots));
  KU_ASSIGN_OR_RETURN(const Buffer memory, device.Allocate(2 * sizeof(float) * tokens *
                                                           static_cast<size_t>(d.kv_size())));
  const Tensor rows = memory.As(DType::kF32, {2 * tokens, d.kv_size()});
  ops.Run(FillRandomArgs{.out = rows, .seed = 1});
  const auto num_slots = static_cast<int64_t>(slots.size());
  const Tensor all = device_slots.As(DType::kI32, {num_slots});
  for (int layer = 0; layer < d.layers; ++layer) {
    const KvView view = kv.View(layer, block_tables);
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

StatusOr<DecodeBatch> MakeBatch(Ops& ops, const DecoderConfig& d, DType weights,
                                const KvShape& shape, bool paged, int context, int batch) {
  DecodeBatch b;
  ComputeDevice& device = ops.device();
  KU_ASSIGN_OR_RETURN(
      b.kv, paged ? MakePagedKvCache(device, shape) : MakeContiguousKvCache(device, shape));
  KU_RETURN_IF_ERROR(b.kv->EnsurePages(shape.num_pages));
  // Pages as sequences take them that grow together: page i of one next to page i of the others.
  const int columns = (shape.num_pages - 1) / batch;
  std::vector<int32_t> tables, cu_seqlens = {0};
  for (int s = 0; s < batch; ++s) {
    for (int i = 0; i < columns; ++i) tables.push_back(1 + i * batch + s);
    cu_seqlens.push_back(s + 1);
  }
  KU_ASSIGN_OR_RETURN(b.tables, ToDevice(device, tables));
  KU_ASSIGN_OR_RETURN(b.cu_seqlens, ToDevice(device, cu_seqlens));
  KU_ASSIGN_OR_RETURN(b.lens, ToDevice(device, std::vector<int32_t>(batch, context)));
  const DType type = ops.ActivationType(weights);
  const size_t q_bytes = DTypeBytes(type) * batch * static_cast<size_t>(d.q_size());
  KU_ASSIGN_OR_RETURN(b.q_memory, device.Allocate(q_bytes));
  KU_ASSIGN_OR_RETURN(b.out_memory, device.Allocate(q_bytes));
  b.block_tables = b.tables.As(DType::kI32, {batch, columns});
  KU_RETURN_IF_ERROR(Fill(ops, d, *b.kv, b.block_tables));
  b.q = b.q_memory.As(type, {batch, d.q_size()});
  b.out = b.out_memory.As(type, {batch, d.q_size()});
  ops.Run(FillRandomArgs{.out = b.q, .seed = 0});
  b.meta.cu_seqlens_q = b.cu_seqlens.As(DType::kI32, {batch + 1});
  b.meta.kv_lens = b.lens.As(DType::kI32, {batch});
  b.meta.num_seqs = batch;
  b.meta.max_q_len = 1;
  b.meta.max_kv_len = context;
  return b;
}

StatusOr<Reading> Attend(Ops& ops, Machine& machine, const DecoderConfig& d, const Workload& w,
                         DType weights, KvFormat kv, bool paged, int context, int batch) {
  const KvShape shape = ShapeOf(d, kv, paged, context, batch);
  KU_ASSIGN_OR_RETURN(const DecodeBatch b,
                      MakeBatch(ops, d, weights, shape, paged, context, batch));
  const float scale = 1 / std::sqrt(static_cast<float>(d.head_dim));
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<CapturedGraph> step, ops.device().Capture([&] {
    for (int layer = 0; layer < d.layers; ++layer) {
      ops.Run(AttentionArgs{.out = b.out,
                            .q = b.q,
                            .kv = b.kv->View(layer, b.block_tables),
                            .meta = b.meta,
                            .scale = scale});
    }
  }));
  ops.device().Sync();
  const double bytes = static_cast<double>(shape.token_bytes()) * context * batch;
  return MeasureReading(machine, bytes, w, [&](int steps) {
    for (int i = 0; i < steps; ++i) step->Replay();
    ops.device().Sync();
    return OkStatus();
  });
}

}  // namespace

Status BenchAttention(const DecoderConfig& d, Device device, const OpsOptions& options,
                      DType weights, KvFormat kv, const Workload& w) {
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Ops> ops, MakeOps(device, options));
  OpsLimits limits;
  limits.max_tokens = limits.max_seqs = w.LargestBatch();
  limits.max_features = d.q_size();
  limits.max_context = w.LongestContext();
  KU_RETURN_IF_ERROR(ops->Reserve(limits));
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Machine> machine,
                      Machine::Make(device, weights, size_t{512} << 20, options.num_threads));
  std::printf("%s, %s, %d layers of %d heads and %d KV heads of %d\n",
              ops->device().Description().c_str(), DTypeName(kv.element_type()), d.layers, d.heads,
              d.kv_heads, d.head_dim);
  std::printf("%-10s %7s %6s %10s %9s %9s %7s\n", "attention", "context", "batch", "us/layer",
              "GB/s", "machine", "ratio");
  for (const int context : w.contexts) {
    for (const int batch : w.batches) {
      for (const bool paged : {true, false}) {
        // The pages of a batch that is too large may be more than a KvShape can count.
        const KvShape one = ShapeOf(d, kv, paged, context, 1);
        const size_t pages = 1 + static_cast<size_t>(one.num_pages - 1) * batch;
        if (pages > ops->device().FreeBytes() / one.page_bytes()) {
          std::fprintf(stderr, "note: %d x %d tokens are left out: no room for the KV cache\n",
                       batch, context);
          continue;
        }
        KU_ASSIGN_OR_RETURN(const Reading r,
                            Attend(*ops, *machine, d, w, weights, kv, paged, context, batch));
        std::printf("%-10s %7d %6d %10.2f %9.1f %9.1f %6.1f%%\n", paged ? "paged" : "contiguous",
                    context, batch, r.seconds * 1e6 / d.layers, r.rate / 1e9, r.bandwidth / 1e9,
                    r.ratio * 100);
        std::fflush(stdout);
      }
    }
  }
  return OkStatus();
}

}  // namespace kuiper::tools
