// Random keys and values: caches for decode steps without computing a prompt. DecodeAttention runs
// the attention of such steps by itself, layer after layer as in a decode step, so that CPU caches
// hold as little as they do there.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kuiper/kv/kv_cache.h"
#include "kuiper/model/config.h"
#include "kuiper/ops/ops.h"

namespace kuiper::tools {

// Sequences of equal length. page_size 0 means contiguous.
struct KvLoad {
  int context = 0, batch = 1, page_size = 0;
  // Pages in random order; else in the order of sequences that grow together.
  bool shuffled = false;

  bool paged() const { return page_size > 0; }
  int pages_per_sequence() const;
  // Includes the null page; contiguous: cache rows. May exceed the range of int.
  int64_t num_pages() const { return 1 + int64_t{batch} * pages_per_sequence(); }
};

KvShape ShapeOf(const DecoderConfig& config, KvFormat format, const KvLoad& load);
bool FitsMemory(const ComputeDevice& device, const DecoderConfig& config, KvFormat format,
                const KvLoad& load);
// Returns [batch, pages_per_sequence].
std::vector<int32_t> BlockTables(const KvLoad& load);
// Fills all layers of the cache's usable pages with the same random keys and values.
Status FillKv(Ops& ops, const DecoderConfig& config, const KvCache& kv);

// A cache of random keys and values, and the inputs of a decode step that attends to it.
class DecodeAttention {
 public:
  // `ops` must outlive it.
  static StatusOr<std::unique_ptr<DecodeAttention>> Make(Ops& ops, const DecoderConfig& config,
                                                         DType weights, KvFormat format,
                                                         const KvLoad& load);
  // The limits to pass to Ops::Reserve.
  static OpsLimits Limits(const DecoderConfig& config, int context, int batch);

  // Runs the attention of all layers, n times, and waits.
  Status Run(int n);
  double bytes() const { return bytes_; }  // bytes of keys and values that one run reads

 private:
  DecodeAttention(Ops& ops, double bytes) : ops_(ops), bytes_(bytes) {}

  Ops& ops_;
  double bytes_;
  std::unique_ptr<KvCache> kv_;
  Buffer tables_, cu_seqlens_, lens_, q_, out_;
  std::unique_ptr<CapturedGraph> step_;
};

}  // namespace kuiper::tools
