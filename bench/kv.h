// Keys and values that are made up: caches of decode steps that no prompt has filled, and the
// attention of such steps by itself, one layer after the other as in a decode step, so that caches
// hold as little as they do there.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kuiper/kv/kv_cache.h"
#include "kuiper/model/config.h"
#include "kuiper/ops/ops.h"

namespace kuiper::tools {

// Sequences that are all as long. Contiguous: page_size is 0.
struct KvLoad {
  int context = 0, batch = 1, page_size = 0;
  bool shuffled = false;  // pages in random order; else as sequences take them that grow together

  bool paged() const { return page_size > 0; }
  int pages_per_sequence() const;
  // With the null page; contiguous: rows. May be more than an int can count.
  int64_t num_pages() const { return 1 + int64_t{batch} * pages_per_sequence(); }
};

KvShape ShapeOf(const DecoderConfig& config, KvFormat format, const KvLoad& load);
bool FitsMemory(const ComputeDevice& device, const DecoderConfig& config, KvFormat format,
                const KvLoad& load);
// [batch, pages_per_sequence]
std::vector<int32_t> BlockTables(const KvLoad& load);
// Fills all layers of the cache's usable pages with the same random keys and values.
Status FillKv(Ops& ops, const DecoderConfig& config, const KvCache& kv);

// A cache of random keys and values, and what a decode step needs to attend to it.
class DecodeAttention {
 public:
  // `ops` must outlive it.
  static StatusOr<std::unique_ptr<DecodeAttention>> Make(Ops& ops, const DecoderConfig& config,
                                                         DType weights, KvFormat format,
                                                         const KvLoad& load);
  // What Ops::Reserve needs for it.
  static OpsLimits Limits(const DecoderConfig& config, int context, int batch);

  // Attends in all layers, n times, and waits.
  Status Run(int n);
  double bytes() const { return bytes_; }  // of keys and values, read by one of them

 private:
  DecodeAttention(Ops& ops, double bytes) : ops_(ops), bytes_(bytes) {}

  Ops& ops_;
  double bytes_;
  std::unique_ptr<KvCache> kv_;
  Buffer tables_, cu_seqlens_, lens_, q_, out_;
  std::unique_ptr<CapturedGraph> step_;
};

}  // namespace kuiper::tools
