// What a kernel sees of the KV cache: plain structs passed by value, one accessor each for paged
// and contiguous storage. A kernel is a template over the view and never computes page arithmetic,
// so both layouts run the same code in the same order (guarantee G1). Host and device.
//
// Storage, in elements: a page holds page_size consecutive tokens of one sequence for all layers,
//   [layer][kv_head][K | V][page_size][head_dim]
// so 16 tokens of one head are contiguous. Contiguous storage is the same with one page of max_len
// tokens per cache row; rows are numbered from 1, as pages that somebody may own are.
#pragma once

#include <cstdint>

#include "kuiper/base/dtype.h"
#include "kuiper/base/host_device.h"

namespace kuiper {

// Strides shared by both layouts.
struct KvStrides {
  int64_t page_stride = 0;   // between pages (contiguous: cache rows)
  int64_t layer_offset = 0;  // of the layer this view is for
  int64_t head_stride = 0;   // between kv heads: 2 * page_size * head_dim
  int64_t v_offset = 0;      // from a K vector to its V vector: page_size * head_dim
  int32_t token_stride = 0;  // between tokens of one page; head_dim in the storage above
  int32_t head_dim = 0;
};

// Page p lives in slabs[p >> slab_shift]; the pool can grow by slabs without moving anything.
template <typename T>
struct PagedView {
  using Element = T;
  T* const* slabs = nullptr;
  const int32_t* block_tables = nullptr;  // [num_seqs, table_stride]; one table serves all layers
  int32_t table_stride = 0;
  int32_t slab_shift = 0;
  int32_t page_shift = 0;  // page_size == 1 << page_shift
  KvStrides s;

  // K vector of token `pos` of batch sequence `seq`; its V vector is s.v_offset further on.
  KU_HOST_DEVICE T* Row(int seq, int pos, int head) const {
    const int32_t page =
        block_tables[static_cast<int64_t>(seq) * table_stride + (pos >> page_shift)];
    return At(page, pos & ((1 << page_shift) - 1), head);
  }
  // K vector of a slot (page * page_size + offset), where new tokens are written.
  KU_HOST_DEVICE T* Slot(int32_t slot, int head) const {
    return At(slot >> page_shift, slot & ((1 << page_shift) - 1), head);
  }
  // Where the page begins: s.page_stride elements of all layers, runs of page_size tokens.
  KU_HOST_DEVICE T* Page(int32_t page) const { return At(page, 0, 0) - s.layer_offset; }
  KU_HOST_DEVICE T* At(int32_t page, int32_t offset, int head) const {
    const int64_t in_slab = page & ((1 << slab_shift) - 1);
    return slabs[page >> slab_shift] + in_slab * s.page_stride + s.layer_offset +
           head * s.head_stride + static_cast<int64_t>(offset) * s.token_stride;
  }
};

template <typename T>
struct ContiguousView {
  using Element = T;
  T* base = nullptr;
  const int32_t* rows = nullptr;  // [num_seqs, row_stride], column 0: each sequence's cache row
  int32_t row_stride = 0;
  int32_t max_len = 0;
  KvStrides s;

  KU_HOST_DEVICE T* Row(int seq, int pos, int head) const {
    return At(rows[static_cast<int64_t>(seq) * row_stride], pos, head);
  }
  // slot = cache row * max_len + position.
  KU_HOST_DEVICE T* Slot(int32_t slot, int head) const {
    return At(slot / max_len, slot % max_len, head);
  }
  // Where the row begins: s.page_stride elements of all layers, runs of max_len tokens.
  KU_HOST_DEVICE T* Page(int32_t row) const { return At(row, 0, 0) - s.layer_offset; }
  KU_HOST_DEVICE T* At(int32_t row, int32_t pos, int head) const {
    return base + (row - 1) * s.page_stride + s.layer_offset + head * s.head_stride +
           static_cast<int64_t>(pos) * s.token_stride;
  }
};

// Type-erased view of one layer; the backends' VisitKv is the only code that unpacks it.
struct KvView {
  enum class Kind : uint8_t { kPaged, kContiguous };
  Kind kind = Kind::kPaged;
  DType dtype = DType::kF32;
  int32_t kv_heads = 0;
  void* const* slabs = nullptr;     // paged
  void* base = nullptr;             // contiguous
  const int32_t* tables = nullptr;  // [num_seqs, table_stride]
  int32_t table_stride = 0;
  int32_t slab_shift = 0;
  int32_t page_shift = 0;
  int32_t max_len = 0;
  KvStrides s;

  template <typename T>
  PagedView<T> Paged() const {
    return {reinterpret_cast<T* const*>(slabs), tables, table_stride, slab_shift, page_shift, s};
  }
  template <typename T>
  ContiguousView<T> Contiguous() const {
    return {static_cast<T*>(base), tables, table_stride, max_len, s};
  }
};

}  // namespace kuiper
