// Decode attention by itself: one query per sequence over keys and values of all layers.
#include <cstdio>

#include "bench/kv.h"
#include "bench/scenarios.h"

namespace kuiper::tools {
namespace {

Line AttentionLine(const KvLoad& load, int layers, const Measurement& m) {
  Line line;
  line.Key("attention", load.paged() ? "paged" : "contiguous")
      .Key("page", PageName(load.paged(), load.page_size))
      .Key("context", load.context)
      .Key("batch", load.batch)
      .Cost("us_per_layer", m.seconds.Times(1e6 / layers));
  AddRates(m, &line);
  return line;
}

}  // namespace

Status BenchAttention(const DecoderConfig& d, const KernelBench& bench, Report* report) {
  const Workload& w = bench.workload;
  const DType weights = bench.dtype.value_or(d.dtype);
  const KvFormat kv = bench.kv_format.value_or(KvFormat::Of(weights));
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Ops> ops, MakeOps(bench.device, bench.ops));
  KU_RETURN_IF_ERROR(
      ops->Reserve(DecodeAttention::Limits(d, w.LongestContext(), w.LargestBatch())));
  KU_ASSIGN_OR_RETURN(
      const std::unique_ptr<Machine> machine,
      Machine::Make(bench.device, weights, size_t{512} << 20, bench.ops.num_threads));
  report->Set("device", ops->device().Description());
  report->Set("kv_dtype", kv.name());
  report->Print("%s, %s, %d layers of %d heads and %d KV heads of %d\n",
                ops->device().Description().c_str(), kv.name(), d.layers, d.heads, d.kv_heads,
                d.head_dim);
  std::vector<int> page_sizes = bench.page_sizes;
  page_sizes.push_back(0);  // 0 stands for contiguous
  for (const int context : w.contexts) {
    for (const int batch : w.batches) {
      for (const int page_size : page_sizes) {
        const KvLoad load = {.context = context, .batch = batch, .page_size = page_size};
        if (!FitsMemory(ops->device(), d, kv, load)) {
          std::fprintf(stderr, "note: %d x %d tokens are left out: no room for the KV cache\n",
                       batch, context);
          continue;
        }
        KU_ASSIGN_OR_RETURN(const std::unique_ptr<DecodeAttention> attention,
                            DecodeAttention::Make(*ops, d, weights, kv, load));
        KU_ASSIGN_OR_RETURN(const Measurement m,
                            MeasureSteps(*machine, {.bytes = attention->bytes()}, w,
                                         [&](int n) { return attention->Run(n); }));
        report->Add(AttentionLine(load, d.layers, m));
      }
    }
  }
  report->Set("yardsticks", machine->Describe());
  return OkStatus();
}

}  // namespace kuiper::tools
