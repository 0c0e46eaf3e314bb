// Storage of keys and values. It knows neither the owner of a page (see BlockPool) nor its content.
// It gives kernels a KvView per layer. The engine grows and shrinks it between steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "kuiper/base/status.h"
#include "kuiper/base/tensor.h"
#include "kuiper/ops/compute_device.h"
#include "kuiper/ops/kv_view.h"

namespace kuiper {

struct KvShape {
  int layers = 0;
  int kv_heads = 0;
  int head_dim = 0;
  // Paged: number of pages, including the null page 0. Contiguous: 1 + the number of cache rows,
  // which are numbered from 1.
  int num_pages = 0;
  int page_size = 0;  // tokens; contiguous: the context length. A power of two when paged
  KvFormat format = {};

  // Bytes of one page over all layers, K and V.
  size_t page_bytes() const {
    return size_t{2} * layers * kv_heads * format.run_bytes(head_dim, page_size);
  }
  // Bytes one token occupies over all layers, K and V.
  size_t token_bytes() const { return page_bytes() / page_size; }
};

class KvCache {
 public:
  virtual ~KvCache() = default;
  virtual const KvShape& shape() const = 0;
  // block_tables: [S, max_pages] i32 (contiguous: column 0 is the cache row).
  virtual KvView View(int layer, Tensor block_tables) const = 0;
  // Returns all bytes of one usable page, [page_bytes] u8, for copies of whole pages.
  virtual Tensor Page(int32_t page) const = 0;
  // Makes pages [0, num_pages) usable, allocating slabs as needed; page 0 always is usable.
  // kResourceExhausted if the device is out of memory; pages that were usable stay usable.
  virtual Status EnsurePages(int num_pages) = 0;
  // Waits for the device, then frees memory that pages [0, num_pages) and page 0 do not need.
  virtual void ShrinkTo(int num_pages) = 0;
  // Bytes allocated so far (address space on the CPU: untouched parts cost no memory).
  virtual size_t bytes() const = 0;
};

// Allocates slabs of at most 256 MB (or one page). A slab is allocated when one of its pages is
// needed and freed by ShrinkTo. Slabs are never zero-filled; large pages lie in huge pages of the
// system. kInvalidArgument for a page size other than a power of two from 1 to 256.
StatusOr<std::unique_ptr<KvCache>> MakePagedKvCache(ComputeDevice& device, const KvShape& shape);
// Makes one allocation for rows [1, num_pages), at least one row. It does not shrink.
StatusOr<std::unique_ptr<KvCache>> MakeContiguousKvCache(ComputeDevice& device,
                                                         const KvShape& shape);

}  // namespace kuiper
