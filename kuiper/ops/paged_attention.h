// Paged attention as a checked call on plain device pointers, for programs that own their KV cache:
// the engine's kernels without the engine (docs/paged_attention.md). A wrong argument returns a
// Status that names it; nothing aborts. The caller's memory is never allocated, freed or kept. Only
// kernels read the contents of device arrays; CheckValues reads them back for debugging.
//
// Dimensions: T query tokens of S sequences, H query heads, G KV heads, D head_size. All strides
// are in elements. Pointers are memory of the device (for `cpu` and `simt`: of the host).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kuiper/base/buffer.h"
#include "kuiper/base/device.h"
#include "kuiper/base/dtype.h"
#include "kuiper/base/status.h"
#include "kuiper/ops/compute_device.h"
#include "kuiper/ops/ops_options.h"

namespace kuiper {

class Ops;
struct KvView;

// The KV cache of one layer. The key of page p, token t, KV head g has its element i at
//   k + p * page_stride + t * token_stride + g * head_stride + i.
// The value is at the same offset from v. INT8 elements are integers: value = element * scale. Each
// key has one scale, at
//   k_scales + p * scale_page_stride + t * scale_token_stride + g * scale_head_stride.
// The scale of the value is at the same offset from v_scales. Fill it in directly or use the
// functions below.
struct PagedKv {
  void* k = nullptr;
  void* v = nullptr;
  DType dtype = DType::kF16;  // FP32, FP16, BF16, INT8, FP8 E4M3 or FP8 E5M2
  int num_pages = 0;          // num_pages * page_size < 2^31
  int page_size = 0;          // tokens: a power of two in [1, 256]
  int kv_heads = 0;           // G
  int head_size = 0;          // D: even up to 256, a multiple of 8 up to 1024
  int64_t page_stride = 0;
  int64_t token_stride = 0;  // < 2^31
  int64_t head_stride = 0;
  // INT8 only.
  float* k_scales = nullptr;
  float* v_scales = nullptr;
  int64_t scale_page_stride = 0;
  int64_t scale_token_stride = 0;  // < 2^31
  int64_t scale_head_stride = 0;

  // k and v are [num_pages, page_size, G, D] each (vLLM, FlashAttention).
  static PagedKv TokenMajor(void* k, void* v, DType dtype, int num_pages, int page_size,
                            int kv_heads, int head_size);
  // One block of memory [num_pages, G, 2 (key, value), page_size, D] (Kuiper's own layout). INT8:
  // each [page_size, D] is followed by its scales [page_size], and both parts begin at multiples of
  // 16 bytes. HeadMajorBytes returns the size.
  static PagedKv HeadMajor(void* kv, DType dtype, int num_pages, int page_size, int kv_heads,
                           int head_size);
  static int64_t HeadMajorBytes(DType dtype, int num_pages, int page_size, int kv_heads,
                                int head_size);
  // k and v are [num_pages, G, page_size, D] each (FlashInfer's HND, TensorRT-LLM).
  static PagedKv HeadMajor(void* k, void* v, DType dtype, int num_pages, int page_size,
                           int kv_heads, int head_size);
  // Adds the scales, in the order of k and v without D: [num_pages, page_size, G] each if tokens
  // are farther apart than heads, else [num_pages, G, page_size].
  PagedKv WithScales(float* keys, float* values) const;
};

// One call of attention: prefill, chunked prefill, decode, and any mixture of them.
//
// Pointers to elements, and strides, are multiples of 16 bytes if D is a multiple of 8, else of two
// elements.
struct PagedAttentionArgs {
  void* out = nullptr;      // [T, H, D]; must not overlap q
  const void* q = nullptr;  // [T, H, D]
  // Type of q and out: the cache's type or FP32; 8-bit caches: any float type.
  DType dtype = DType::kF16;
  int64_t q_stride = 0;       // between tokens; 0 = contiguous, H * D
  int64_t q_head_stride = 0;  // between heads; 0 = D. [H, T, D] is q_stride D, q_head_stride T * D
  int64_t out_stride = 0;
  int num_tokens = 0;  // T
  int num_heads = 0;   // H, a multiple of kv.kv_heads

  PagedKv kv;

  // Indices are 32-bit integers; a caller whose framework has 64-bit ones must convert them
  // (CheckValues reports missing conversions). Sequence s owns the rows [cu_seqlens_q[s],
  // cu_seqlens_q[s + 1]) of q, which are the last ones of its kv_lens[s] tokens. Its token at
  // position n is in page block_tables[s][n / page_size].
  int num_seqs = 0;                       // S
  const int32_t* cu_seqlens_q = nullptr;  // [S + 1], from 0 to T
  const int32_t* kv_lens = nullptr;       // [S], including the rows of q
  const int32_t* block_tables = nullptr;  // [S, block_table_stride]
  int block_table_stride = 0;             // >= ceil(max_kv_len / page_size)
  // Upper bounds of the sequences' lengths. Tight bounds select the better kernel.
  int max_q_len = 0;
  int max_kv_len = 0;

  float scale = 0.0f;  // factor of the scores; 0 = 1 / sqrt(D)
  // AttnOptions has the same fields.
  bool causal = true;
  int window = 0;                       // 0 = off
  const float* alibi_slopes = nullptr;  // [H]; null = off
};

// Keys and values of T tokens to write to the cache.
struct PagedStoreArgs {
  PagedKv kv;
  const void* k = nullptr;    // [T, G, D]
  const void* v = nullptr;    // [T, G, D]
  DType dtype = DType::kF16;  // type of k and v: the cache's type, or FP32
  int64_t k_stride = 0;       // between tokens; 0 = contiguous, G * D
  int64_t v_stride = 0;
  int num_tokens = 0;              // T
  const int32_t* slots = nullptr;  // [T]: page * page_size + token in the page
};

// The sizes of the largest call, which determine the scratch memory.
struct PagedAttentionLimits {
  int max_seqs = 0;
  int max_heads = 0;      // H
  int max_head_size = 0;  // D
  int max_kv_len = 0;
};

// A device, a stream and scratch memory. Calls of one object run in the order they were made; it is
// not thread-safe. A call that returns OK was enqueued, not executed: arguments may go out of
// scope, but device memory must stay until Sync. Work of other streams on that memory must be
// complete before the call. Calls make the device current for the thread, as cudaSetDevice does.
//
// Run and StoreKv never wait for the device, so that a caller may capture them in a CUDA graph, on
// the stream set by SetStream. Call each once before: drivers before CUDA 12.3 cannot load a kernel
// inside a capture. The graph holds addresses of the object's scratch memory, so the object must
// live as long as the graph. Replays must not run at the same time as the object's other calls.
class PagedAttention {
 public:
  // kUnavailable: the build or the machine has no such device. kResourceExhausted: not enough
  // memory. kInvalidArgument: a limit is out of its range.
  static StatusOr<PagedAttention> Create(Device device, const PagedAttentionLimits& limits,
                                         const OpsOptions& options = {});
  ~PagedAttention();
  PagedAttention(PagedAttention&&) noexcept;
  PagedAttention& operator=(PagedAttention&&) noexcept;

  // Sends later calls to the caller's stream, a cudaStream_t, which must live as long as they do;
  // null is CUDA's default stream, as in cuBLAS. The object's work on the earlier stream must be
  // complete, or ordered before. kInvalidArgument: the device has no streams (`cpu`).
  Status SetStream(void* stream);
  // out = softmax(scale q k^T + bias) v. kInvalidArgument names the argument, its value, and what
  // is allowed; nothing was enqueued. kInternal, with the driver's message: a kernel was refused.
  Status Run(const PagedAttentionArgs& args);
  // Copies k and v to their slots, converted to the cache's type. Errors as in Run.
  Status StoreKv(const PagedStoreArgs& args);
  // Does Run's checks, and checks that the lengths and page numbers on the device are valid for
  // PagedAttentionArgs. Copies them to the host and waits. Errors as in Run and Sync.
  Status CheckValues(const PagedAttentionArgs& args);
  // Waits until every call is executed. kInvalidArgument: the stream is being captured; the capture
  // continues. kUnavailable, with the driver's message: a fault of the device, for example from a
  // wrong pointer or page number. After a fault, CUDA does no more work for this process.
  Status Sync();

  // The device itself: memory, and copies in order with the calls. It belongs to the engine's API:
  // after a fault, functions that return no Status end the process.
  ComputeDevice& device() const;

 private:
  PagedAttention();
  KvView ViewOf(const PagedKv& kv) const;
  // Returns the n numbers at `data` on the device.
  StatusOr<std::vector<int32_t>> ReadBack(const int32_t* data, int n);

  PagedAttentionLimits limits_;
  std::unique_ptr<Ops> ops_;
  // Views address pages as slabs[page >> slab_shift] + offset. The only slab is `anchor_`, and the
  // offset leads from it to the caller's memory, so that a call uploads no pointer.
  Buffer anchor_;
  Buffer slabs_;  // [1] pointer
};

}  // namespace kuiper
