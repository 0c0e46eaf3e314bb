// What a kernel sees of the KV cache: plain structs passed by value, one accessor each for paged
// and contiguous storage. A kernel is a template over the view, gets rows from it and never
// computes page arithmetic, so both layouts run the same code in the same order (guarantee G1).
// Host and device.
//
// Storage: a page holds page_size consecutive tokens of one sequence for all layers,
//   [layer][kv_head][K | V][page_size][row of head_dim]
// so 16 tokens of one head are contiguous. Contiguous storage is the same with one page of max_len
// tokens per cache row; rows are numbered from 1, as pages that somebody may own are.
#pragma once

#include <cstdint>

#include "kuiper/base/host_device.h"
#include "kuiper/ops/kv_format.h"

namespace kuiper {

// Strides shared by both layouts, in units of the format. Read by the views only.
struct KvStrides {
  int64_t page_stride = 0;   // between pages (contiguous: cache rows)
  int64_t layer_offset = 0;  // of the layer this view is for
  int64_t head_stride = 0;   // between kv heads
  int64_t v_offset = 0;      // from a key to its value
  int32_t token_stride = 0;  // between tokens of one page
  int32_t head_dim = 0;

  // The storage above: a run is the keys or values of one head and layer in a page.
  static KvStrides OfPages(KvFormat format, int layers, int kv_heads, int head_dim, int page_size,
                           int layer) {
    KvStrides s;
    s.head_dim = head_dim;
    s.token_stride = static_cast<int32_t>(format.row_units(head_dim));
    s.v_offset = int64_t{page_size} * s.token_stride;
    s.head_stride = 2 * s.v_offset;
    s.layer_offset = layer * (kv_heads * s.head_stride);
    s.page_stride = layers * (kv_heads * s.head_stride);
    return s;
  }
};

// What views of both layouts do once they have found a page.
template <typename T>
struct KvViewBase {
  using Element = T;
  using Row = KvRow<T>;
  using Unit = typename Row::Unit;
  KvStrides s;

  KU_HOST_DEVICE int head_dim() const { return s.head_dim; }
  // The value that belongs to a key.
  KU_HOST_DEVICE Row ValueOf(Row key) const { return {key.data + s.v_offset}; }
  // The same of the next token, within a page.
  KU_HOST_DEVICE Row Next(Row row) const { return {row.data + s.token_stride}; }
  // Units of the first n tokens of a run.
  KU_HOST_DEVICE int64_t RunUnits(int64_t n) const { return n * s.token_stride; }
  KU_HOST_DEVICE int64_t MaxRunUnits() const { return s.v_offset; }

 protected:
  KU_HOST_DEVICE Row InPage(Unit* page, int64_t offset, int head) const {
    return {page + s.layer_offset + head * s.head_stride + offset * s.token_stride};
  }
};

// Page p lives in slabs[p >> slab_shift]; the pool can grow by slabs without moving anything.
template <typename T>
struct PagedView : KvViewBase<T> {
  using typename KvViewBase<T>::Row;
  using typename KvViewBase<T>::Unit;
  Unit* const* slabs = nullptr;
  const int32_t* block_tables = nullptr;  // [num_seqs, table_stride]; one table serves all layers
  int32_t table_stride = 0;
  int32_t slab_shift = 0;
  int32_t page_shift = 0;  // page_size == 1 << page_shift

  KU_HOST_DEVICE int page_size() const { return 1 << page_shift; }
  // The key of token `pos` of batch sequence `seq`.
  KU_HOST_DEVICE Row Key(int seq, int pos, int head) const {
    const int32_t page =
        block_tables[static_cast<int64_t>(seq) * table_stride + (pos >> page_shift)];
    return At(page, pos & ((1 << page_shift) - 1), head);
  }
  // The key of a slot (page * page_size + offset), where new tokens are written.
  KU_HOST_DEVICE Row Slot(int32_t slot, int head) const {
    return At(slot >> page_shift, slot & ((1 << page_shift) - 1), head);
  }
  KU_HOST_DEVICE Row At(int32_t page, int32_t offset, int head) const {
    return this->InPage(Page(page), offset, head);
  }
  // Run `run` of a page, over all layers: keys and values of the heads in turn.
  KU_HOST_DEVICE Unit* Run(int32_t page, int64_t run) const {
    return Page(page) + run * this->s.v_offset;
  }

 private:
  KU_HOST_DEVICE Unit* Page(int32_t page) const {
    const int64_t in_slab = page & ((1 << slab_shift) - 1);
    return slabs[page >> slab_shift] + in_slab * this->s.page_stride;
  }
};

template <typename T>
struct ContiguousView : KvViewBase<T> {
  using typename KvViewBase<T>::Row;
  using typename KvViewBase<T>::Unit;
  Unit* base = nullptr;
  const int32_t* rows = nullptr;  // [num_seqs, row_stride], column 0: each sequence's cache row
  int32_t row_stride = 0;
  int32_t max_len = 0;

  KU_HOST_DEVICE int page_size() const { return max_len; }
  KU_HOST_DEVICE Row Key(int seq, int pos, int head) const {
    return At(rows[static_cast<int64_t>(seq) * row_stride], pos, head);
  }
  // slot = cache row * max_len + position.
  KU_HOST_DEVICE Row Slot(int32_t slot, int head) const {
    return At(slot / max_len, slot % max_len, head);
  }
  KU_HOST_DEVICE Row At(int32_t row, int32_t pos, int head) const {
    return this->InPage(Page(row), pos, head);
  }
  KU_HOST_DEVICE Unit* Run(int32_t row, int64_t run) const {
    return Page(row) + run * this->s.v_offset;
  }

 private:
  KU_HOST_DEVICE Unit* Page(int32_t row) const { return base + (row - 1) * this->s.page_stride; }
};

// Type-erased view of one layer; the backends' VisitKv is the only code that unpacks it.
struct KvView {
  enum class Kind : uint8_t { kPaged, kContiguous };
  Kind kind = Kind::kPaged;
  KvFormat format;
  int32_t kv_heads = 0;
  void* const* slabs = nullptr;     // paged
  void* base = nullptr;             // contiguous
  const int32_t* tables = nullptr;  // [num_seqs, table_stride]
  int32_t table_stride = 0;
  int32_t slab_shift = 0;
  int32_t page_shift = 0;
  int32_t max_len = 0;
  KvStrides s;

  int head_dim() const { return s.head_dim; }
  // Columns of a matrix [T, G*D] of new keys or values.
  int64_t row_width() const { return int64_t{1} * kv_heads * s.head_dim; }
  // Whether heads, strides and storage are there.
  bool IsComplete() const {
    return kv_heads > 0 && s.head_dim > 0 && s.token_stride >= format.row_units(s.head_dim) &&
           (kind == Kind::kPaged ? slabs != nullptr : base != nullptr && max_len > 0);
  }
  // Whether pages are runs without gaps, as a KvCache stores them; the rest is for such views.
  bool HasRuns() const {
    return s.v_offset > 0 && s.page_stride % s.v_offset == 0 && s.head_stride == 2 * s.v_offset &&
           s.token_stride == format.row_units(s.head_dim);
  }
  int64_t runs_per_page() const { return s.page_stride / s.v_offset; }
  int64_t run_bytes() const { return s.v_offset * format.unit_bytes(); }

  template <typename T>
  PagedView<T> Paged() const {
    using Unit = typename PagedView<T>::Unit;
    return {{s},       reinterpret_cast<Unit* const*>(slabs), tables, table_stride, slab_shift,
            page_shift};
  }
  template <typename T>
  ContiguousView<T> Contiguous() const {
    return {
        {s}, static_cast<typename ContiguousView<T>::Unit*>(base), tables, table_stride, max_len};
  }
};

}  // namespace kuiper
