// The KV cache as kernels see it: plain structs passed by value, one accessor each for paged and
// contiguous storage. A kernel is a template over the view, gets rows from it and never computes
// page offsets. Both layouts thus run the same code in the same order (guarantee G1). Host and
// device.
//
// Storage: a page holds page_size consecutive tokens of one sequence for all layers,
//   [layer][kv_head][K | V][page_size][row of head_dim]
// so 16 tokens of one head are contiguous. In a format with scales, the scales of the page_size
// rows follow the rows (KvFormat::run_units). Contiguous storage is the same with one page of
// max_len tokens per cache row. Rows are numbered from 1, like pages that sequences can own.
#pragma once

#include <cstdint>

#include "kuiper/base/host_device.h"
#include "kuiper/ops/kv_format.h"

namespace kuiper {

// Strides shared by both layouts, in elements of the format (for scales: in floats). Read by the
// views only.
struct KvStrides {
  int64_t page_stride = 0;   // between pages (contiguous: cache rows)
  int64_t layer_offset = 0;  // offset of the view's layer
  int64_t head_stride = 0;   // between kv heads
  int64_t v_offset = 0;      // from a key to its value
  int32_t token_stride = 0;  // between tokens of one page
  int32_t head_dim = 0;

  // Strides of the storage described above. A run is the keys or values of one head and layer in a
  // page.
  static KvStrides OfPages(KvFormat format, int layers, int kv_heads, int head_dim, int page_size,
                           int layer) {
    KvStrides s;
    s.head_dim = head_dim;
    s.token_stride = static_cast<int32_t>(format.row_units(head_dim));
    s.v_offset = format.run_units(head_dim, page_size);
    s.head_stride = 2 * s.v_offset;
    s.layer_offset = layer * (kv_heads * s.head_stride);
    s.page_stride = layers * (kv_heads * s.head_stride);
    return s;
  }
  // Returns the strides of the scales within this storage.
  KvStrides ScalesOfPages(KvFormat format, int page_size) const {
    constexpr auto kBytes = static_cast<int64_t>(sizeof(float));
    const int64_t unit = format.unit_bytes();
    KvStrides scales;
    scales.head_dim = scales.token_stride = 1;
    scales.v_offset = v_offset * unit / kBytes;
    scales.head_stride = head_stride * unit / kBytes;
    scales.layer_offset = (layer_offset * unit + format.ScalesInRun(head_dim, page_size)) / kBytes;
    scales.page_stride = page_stride * unit / kBytes;
    return scales;
  }
  // Returns the offset of a key from the first page of a slab.
  KU_HOST_DEVICE int64_t Offset(int64_t page, int64_t token, int head) const {
    return page * page_stride + layer_offset + head * head_stride + token * token_stride;
  }
};

// The strides of the scales, for rows that have one.
template <bool kHasScale>
struct KvScaleStrides {};
template <>
struct KvScaleStrides<true> {
  KvStrides scales;
};

// Shared by the views of both layouts, once they have found a page.
template <typename T>
struct KvViewBase : KvScaleStrides<KvRow<T>::kHasScale> {
  using Element = T;
  using Row = KvRow<T>;
  using Unit = typename Row::Unit;
  KvStrides s;

  KU_HOST_DEVICE int head_dim() const { return s.head_dim; }
  // Returns the value that belongs to a key.
  KU_HOST_DEVICE Row ValueOf(Row key) const {
    if constexpr (Row::kHasScale) {
      return {key.data + s.v_offset, key.scale + this->scales.v_offset};
    } else {
      return {key.data + s.v_offset};
    }
  }
  // Returns the key or value of the next token, within a page.
  KU_HOST_DEVICE Row Next(Row row) const {
    if constexpr (Row::kHasScale) {
      return {row.data + s.token_stride, row.scale + this->scales.token_stride};
    } else {
      return {row.data + s.token_stride};
    }
  }

  // Units of the first n tokens of a run, for part 0 (elements) and part 1 (scales).
  static constexpr int kRunParts = Row::kHasScale ? 2 : 1;
  struct Part {
    int64_t begin, size;
  };
  KU_HOST_DEVICE Part PartOfRun(int part, int64_t n) const {
    if constexpr (Row::kHasScale) {
      constexpr auto kPerScale = static_cast<int64_t>(sizeof(float) / sizeof(Unit));
      if (part == 1) return {this->scales.layer_offset * kPerScale - s.layer_offset, n * kPerScale};
    }
    return {0, n * s.token_stride};
  }
  KU_HOST_DEVICE int64_t MaxRunUnits() const { return s.v_offset; }

 protected:
  // Returns the key of a token in page `page` of a slab.
  KU_HOST_DEVICE Row InSlab(Unit* slab, int64_t page, int64_t offset, int head) const {
    if constexpr (Row::kHasScale) {
      return {slab + s.Offset(page, offset, head),
              reinterpret_cast<float*>(slab) + this->scales.Offset(page, offset, head)};
    } else {
      return {slab + s.Offset(page, offset, head)};
    }
  }
};

// Page p is in slabs[p >> slab_shift]; the pool can grow by slabs without moving data.
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
  // Returns the key of token `pos` of batch sequence `seq`.
  KU_HOST_DEVICE Row Key(int seq, int pos, int head) const {
    const int32_t page =
        block_tables[static_cast<int64_t>(seq) * table_stride + (pos >> page_shift)];
    return At(page, pos & ((1 << page_shift) - 1), head);
  }
  // Returns the key of a slot (page * page_size + offset), to which new tokens are written.
  KU_HOST_DEVICE Row Slot(int32_t slot, int head) const {
    return At(slot >> page_shift, slot & ((1 << page_shift) - 1), head);
  }
  KU_HOST_DEVICE Row At(int32_t page, int32_t offset, int head) const {
    return this->InSlab(slabs[page >> slab_shift], IndexInSlab(page), offset, head);
  }
  // Returns run `run` of a page, counted over all layers: keys and values of the heads alternate.
  KU_HOST_DEVICE Unit* Run(int32_t page, int64_t run) const {
    return slabs[page >> slab_shift] + IndexInSlab(page) * this->s.page_stride +
           run * this->s.v_offset;
  }

 private:
  KU_HOST_DEVICE int64_t IndexInSlab(int32_t page) const { return page & ((1 << slab_shift) - 1); }
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
    return this->InSlab(base, row - 1, pos, head);
  }
  KU_HOST_DEVICE Unit* Run(int32_t row, int64_t run) const {
    return base + (row - 1) * this->s.page_stride + run * this->s.v_offset;
  }
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
  KvStrides scales = {};  // for formats with scales

  int head_dim() const { return s.head_dim; }
  // Sets the strides for `layer` of storage as above. `format` and `kv_heads` must be set.
  void SetPages(int layers, int head_dim, int page_size, int layer) {
    s = KvStrides::OfPages(format, layers, kv_heads, head_dim, page_size, layer);
    if (format.has_scales()) scales = s.ScalesOfPages(format, page_size);
  }
  // Columns of a matrix [T, G*D] of new keys or values.
  int64_t row_width() const { return int64_t{1} * kv_heads * s.head_dim; }
  // True if heads, strides and storage are set.
  bool IsComplete() const {
    return kv_heads > 0 && s.head_dim > 0 && s.token_stride >= format.row_units(s.head_dim) &&
           (!format.has_scales() || scales.token_stride > 0) &&
           (kind == Kind::kPaged ? slabs != nullptr : base != nullptr && max_len > 0);
  }
  // True if pages consist of runs without gaps, as in a KvCache; runs_per_page and run_bytes need
  // that.
  bool HasRuns() const {
    return s.v_offset > 0 && s.page_stride % s.v_offset == 0 && s.head_stride == 2 * s.v_offset &&
           s.token_stride == format.row_units(s.head_dim) &&
           (!format.has_scales() || (scales.token_stride == 1 && scales.layer_offset > 0));
  }
  int64_t runs_per_page() const { return s.page_stride / s.v_offset; }
  int64_t run_bytes() const { return s.v_offset * format.unit_bytes(); }

  template <typename T>
  PagedView<T> Paged() const {
    using Unit = typename PagedView<T>::Unit;
    return {Base<T>(), reinterpret_cast<Unit* const*>(slabs), tables, table_stride, slab_shift,
            page_shift};
  }
  template <typename T>
  ContiguousView<T> Contiguous() const {
    using Unit = typename ContiguousView<T>::Unit;
    return {Base<T>(), static_cast<Unit*>(base), tables, table_stride, max_len};
  }

 private:
  template <typename T>
  KvViewBase<T> Base() const {
    if constexpr (KvRow<T>::kHasScale) {
      return {{scales}, s};
    } else {
      return {{}, s};
    }
  }
};

}  // namespace kuiper
