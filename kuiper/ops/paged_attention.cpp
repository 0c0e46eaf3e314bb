#include "kuiper/ops/paged_attention.h"

#include <bit>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/ops/ops.h"
#include "kuiper/ops/paged_check.h"

namespace kuiper {
namespace {

using namespace paged;  // NOLINT(google-build-using-namespace)

// Checks the type of q, k and v: the type of the cache or FP32; any float type if the cache is not
// of a float type.
Status CheckActivation(DType dtype, DType cache) {
  KU_RETURN_IF_ERROR(CheckDType("dtype", dtype));
  if (dtype == DType::kF32 || dtype == cache || !IsFloat(cache)) return OkStatus();
  return Invalid(std::string("dtype is ") + DTypeName(dtype) + " and kv.dtype " + DTypeName(cache) +
                 "; dtype must be FP32 or that of the cache");
}

// Checks the strides of q: tokens contain heads, or heads contain tokens, and no row may overlap
// the next.
Status CheckQueries(const PagedAttentionArgs& args) {
  const int d = args.kv.head_size;
  KU_RETURN_IF_ERROR(CheckElements("q", args.q, args.dtype, d));
  const int64_t heads = args.num_heads, tokens = args.num_tokens;
  const int64_t head_stride = args.q_head_stride != 0 ? args.q_head_stride : d;
  const int64_t token_stride = args.q_stride != 0 ? args.q_stride : heads * d;
  const bool head_major = head_stride > token_stride;
  const int64_t head_low = head_major ? std::max<int64_t>(tokens - 1, 0) * token_stride + d : d;
  const int64_t token_low = head_major ? d : (heads - 1) * head_stride + d;
  KU_RETURN_IF_ERROR(CheckStride("q_head_stride", head_stride, head_low, args.dtype, d));
  return CheckStride("q_stride", token_stride, token_low, args.dtype, d);
}

// Checks a caller's matrix [T, heads * D].
Status CheckRows(const char* name, const void* data, const char* stride_name, int64_t stride,
                 int64_t width, DType dtype, int head_size) {
  KU_RETURN_IF_ERROR(CheckElements(name, data, dtype, head_size));
  return stride == 0 ? OkStatus() : CheckStride(stride_name, stride, width, dtype, head_size);
}

Status CheckSequences(const PagedAttentionArgs& args, const PagedAttentionLimits& limits) {
  KU_RETURN_IF_ERROR(InRange("num_seqs", args.num_seqs, 0, limits.max_seqs));
  KU_RETURN_IF_ERROR(InRange("max_q_len", args.max_q_len, 1, kMaxInt));
  KU_RETURN_IF_ERROR(InRange("max_kv_len", args.max_kv_len, 1, limits.max_kv_len));
  KU_RETURN_IF_ERROR(CheckArray("cu_seqlens_q", args.cu_seqlens_q));
  KU_RETURN_IF_ERROR(CheckArray("kv_lens", args.kv_lens));
  KU_RETURN_IF_ERROR(CheckArray("block_tables", args.block_tables));
  const int blocks = (args.max_kv_len - 1) / args.kv.page_size + 1;
  return InRange("block_table_stride", args.block_table_stride, blocks, kMaxInt);
}

Status CheckRun(const PagedAttentionArgs& args, const PagedAttentionLimits& limits) {
  const PagedKv& kv = args.kv;
  KU_RETURN_IF_ERROR(CheckCache(kv));
  KU_RETURN_IF_ERROR(InRange("kv.head_size", kv.head_size, 2, limits.max_head_size));
  KU_RETURN_IF_ERROR(CheckActivation(args.dtype, kv.dtype));
  KU_RETURN_IF_ERROR(InRange("num_heads", args.num_heads, 1, limits.max_heads));
  if (args.num_heads % kv.kv_heads != 0) {
    return Invalid("num_heads is " + std::to_string(args.num_heads) +
                   "; it must be a multiple of kv.kv_heads, " + std::to_string(kv.kv_heads));
  }
  KU_RETURN_IF_ERROR(InRange("num_tokens", args.num_tokens, 0, kMaxInt / args.num_heads));
  const int64_t width = int64_t{1} * args.num_heads * kv.head_size;
  KU_RETURN_IF_ERROR(CheckQueries(args));
  KU_RETURN_IF_ERROR(
      CheckRows("out", args.out, "out_stride", args.out_stride, width, args.dtype, kv.head_size));
  KU_RETURN_IF_ERROR(CheckSequences(args, limits));
  if (!std::isfinite(args.scale) || args.scale < 0.0f) {
    return Invalid("scale is " + std::to_string(args.scale) +
                   "; it must be positive, or 0 for 1 / sqrt(head_size)");
  }
  KU_RETURN_IF_ERROR(InRange("window", args.window, 0, kMaxInt));
  if (reinterpret_cast<uintptr_t>(args.alibi_slopes) % sizeof(float) != 0) {
    return Invalid("alibi_slopes is not aligned to 4 bytes");
  }
  return OkStatus();
}

Status CheckStore(const PagedStoreArgs& args) {
  const PagedKv& kv = args.kv;
  KU_RETURN_IF_ERROR(CheckCache(kv));
  KU_RETURN_IF_ERROR(CheckActivation(args.dtype, kv.dtype));
  KU_RETURN_IF_ERROR(InRange("num_tokens", args.num_tokens, 0, kMaxInt / kv.kv_heads));
  const int64_t width = int64_t{1} * kv.kv_heads * kv.head_size;
  KU_RETURN_IF_ERROR(
      CheckRows("k", args.k, "k_stride", args.k_stride, width, args.dtype, kv.head_size));
  KU_RETURN_IF_ERROR(
      CheckRows("v", args.v, "v_stride", args.v_stride, width, args.dtype, kv.head_size));
  return CheckArray("slots", args.slots);
}

// Returns a caller's matrix [rows, width]. Kernels do not write to it if the caller passed it as
// const.
Tensor RowsOf(const void* data, DType dtype, int64_t rows, int64_t width, int64_t stride,
              Device device) {
  Tensor t = Tensor::Dense(const_cast<void*>(data), dtype, {rows, width}, device);
  if (stride != 0) t.stride[0] = stride;
  return t;
}

Tensor VectorOf(const int32_t* data, int64_t n, Device device) {
  return Tensor::Dense(const_cast<int32_t*>(data), DType::kI32, {n}, device);
}

int64_t ElementsBetween(const void* from, const void* to, DType dtype) {
  const auto bytes =
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from));
  return bytes / static_cast<int64_t>(DTypeBytes(dtype));
}

// Detects 64-bit indices: little-endian 64-bit integers below 2^32 have a zero in every second
// word.
std::string WidthHint(const std::vector<int32_t>& values) {
  for (size_t i = 1; i < values.size(); i += 2) {
    if (values[i] != 0) return "";
  }
  return "; if these are 64-bit integers, convert them to 32 bits";
}

std::string Entry(const char* name, int64_t index, int64_t value) {
  return std::string(name) + "[" + std::to_string(index) + "] is " + std::to_string(value);
}

}  // namespace

PagedAttention::PagedAttention() = default;
PagedAttention::~PagedAttention() = default;
PagedAttention::PagedAttention(PagedAttention&&) noexcept = default;
PagedAttention& PagedAttention::operator=(PagedAttention&&) noexcept = default;

ComputeDevice& PagedAttention::device() const {
  return ops_->device();
}

StatusOr<PagedAttention> PagedAttention::Create(Device device, const PagedAttentionLimits& limits,
                                                const OpsOptions& options) {
  KU_RETURN_IF_ERROR(InRange("limits.max_seqs", limits.max_seqs, 1, 1 << 20));
  KU_RETURN_IF_ERROR(InRange("limits.max_heads", limits.max_heads, 1, 1 << 16));
  KU_RETURN_IF_ERROR(InRange("limits.max_head_size", limits.max_head_size, 2, kMaxHeadSize));
  KU_RETURN_IF_ERROR(InRange("limits.max_kv_len", limits.max_kv_len, 1, 1 << 30));
  KU_RETURN_IF_ERROR(InRange("options.num_threads", options.num_threads, 0, 1024));
  PagedAttention attention;
  attention.limits_ = limits;
  OpsOptions without_linear = options;
  // Then no memory is reserved for linear layers.
  without_linear.determinism = Determinism::kStrict;
  KU_ASSIGN_OR_RETURN(attention.ops_, MakeOps(device, without_linear));
  ComputeDevice& opened = attention.device();
  OpsLimits reserved;
  reserved.max_seqs = limits.max_seqs;
  reserved.max_features = limits.max_heads * limits.max_head_size;
  reserved.max_context = limits.max_kv_len;
  KU_RETURN_IF_ERROR(attention.ops_->Reserve(reserved));
  KU_ASSIGN_OR_RETURN(attention.anchor_, opened.Allocate(sizeof(int64_t)));
  KU_ASSIGN_OR_RETURN(attention.slabs_, opened.Allocate(sizeof(int64_t)));
  auto anchor = static_cast<int64_t>(reinterpret_cast<uintptr_t>(attention.anchor_.data()));
  KU_RETURN_IF_ERROR(opened.Enqueue([&] {
    opened.Upload(attention.slabs_.As(DType::kI64, {1}), Tensor::Dense(&anchor, DType::kI64, {1}));
  }));
  KU_RETURN_IF_ERROR(opened.TrySync());
  return StatusOr<PagedAttention>(std::move(attention));
}

KvView PagedAttention::ViewOf(const PagedKv& kv) const {
  KvView view;
  view.format = KvFormat::Of(kv.dtype);
  view.kv_heads = kv.kv_heads;
  view.slabs = static_cast<void* const*>(slabs_.data());
  view.slab_shift = kSlabShift;
  view.page_shift = std::countr_zero(static_cast<unsigned>(kv.page_size));
  view.s = {.page_stride = kv.page_stride,
            .layer_offset = ElementsBetween(anchor_.data(), kv.k, kv.dtype),
            .head_stride = kv.head_stride,
            .v_offset = ElementsBetween(kv.k, kv.v, kv.dtype),
            .token_stride = static_cast<int32_t>(kv.token_stride),
            .head_dim = kv.head_size};
  if (view.format.has_scales()) {
    view.scales = {.page_stride = kv.scale_page_stride,
                   .layer_offset = ElementsBetween(anchor_.data(), kv.k_scales, DType::kF32),
                   .head_stride = kv.scale_head_stride,
                   .v_offset = ElementsBetween(kv.k_scales, kv.v_scales, DType::kF32),
                   .token_stride = static_cast<int32_t>(kv.scale_token_stride),
                   .head_dim = 1};
  }
  return view;
}

Status PagedAttention::SetStream(void* stream) {
  return device().SetStream(stream);
}

Status PagedAttention::Run(const PagedAttentionArgs& args) {
  KU_RETURN_IF_ERROR(CheckRun(args, limits_));
  const Device id = device().id();
  const int64_t width = int64_t{1} * args.num_heads * args.kv.head_size;
  KvView view = ViewOf(args.kv);
  view.tables = args.block_tables;
  view.table_stride = args.block_table_stride;
  AttnMeta meta;
  meta.cu_seqlens_q = VectorOf(args.cu_seqlens_q, args.num_seqs + 1, id);
  meta.kv_lens = VectorOf(args.kv_lens, args.num_seqs, id);
  meta.num_seqs = args.num_seqs;
  meta.max_q_len = args.max_q_len;
  meta.max_kv_len = args.max_kv_len;
  AttnOptions options;
  options.causal = args.causal;
  options.window = args.window;
  if (args.alibi_slopes != nullptr) {
    options.alibi_slopes =
        Tensor::Dense(const_cast<float*>(args.alibi_slopes), DType::kF32, {args.num_heads}, id);
  }
  const float scale =
      args.scale != 0.0f ? args.scale : 1.0f / std::sqrt(static_cast<float>(args.kv.head_size));
  const AttentionArgs checked{
      .out = RowsOf(args.out, args.dtype, args.num_tokens, width, args.out_stride, id),
      .q = RowsOf(args.q, args.dtype, args.num_tokens, width, args.q_stride, id),
      .kv = view,
      .meta = meta,
      .scale = scale,
      .options = options,
      .q_head_stride = args.q_head_stride};
  return device().Enqueue([&] { ops_->Run(checked); });
}

Status PagedAttention::StoreKv(const PagedStoreArgs& args) {
  KU_RETURN_IF_ERROR(CheckStore(args));
  const Device id = device().id();
  const int64_t width = int64_t{1} * args.kv.kv_heads * args.kv.head_size;
  const StoreKvArgs checked{
      .kv = ViewOf(args.kv),
      .k = RowsOf(args.k, args.dtype, args.num_tokens, width, args.k_stride, id),
      .v = RowsOf(args.v, args.dtype, args.num_tokens, width, args.v_stride, id),
      .slots = VectorOf(args.slots, args.num_tokens, id)};
  return device().Enqueue([&] { ops_->Run(checked); });
}

Status PagedAttention::Sync() {
  return device().TrySync();
}

StatusOr<std::vector<int32_t>> PagedAttention::ReadBack(const int32_t* data, int n) {
  std::vector<int32_t> values(static_cast<size_t>(n));
  KU_RETURN_IF_ERROR(device().Enqueue([&] {
    device().Download(VectorOf(values.data(), n, Device{}), VectorOf(data, n, device().id()));
  }));
  KU_RETURN_IF_ERROR(Sync());
  return values;
}

Status PagedAttention::CheckValues(const PagedAttentionArgs& args) {
  KU_RETURN_IF_ERROR(CheckRun(args, limits_));
  // Must come before any copy, which would become part of the caller's capture.
  if (const Status idle = Sync(); !idle.ok()) {
    return Status(idle.code(), "values cannot be checked: " + idle.message(), idle.hint());
  }
  KU_ASSIGN_OR_RETURN(const std::vector<int32_t> cu,
                      ReadBack(args.cu_seqlens_q, args.num_seqs + 1));
  KU_ASSIGN_OR_RETURN(const std::vector<int32_t> lens, ReadBack(args.kv_lens, args.num_seqs));
  const auto seqs = static_cast<size_t>(args.num_seqs);
  if (cu[0] != 0) return Invalid(Entry("cu_seqlens_q", 0, cu[0]) + "; it must be 0");
  for (size_t s = 0; s < seqs; ++s) {
    const int64_t q_len = int64_t{cu[s + 1]} - cu[s];
    const auto seq = static_cast<int64_t>(s);
    if (q_len < 0 || q_len > args.max_q_len || cu[s + 1] > args.num_tokens) {
      return Invalid(Entry("cu_seqlens_q", seq + 1, cu[s + 1]) + " after " + std::to_string(cu[s]) +
                     "; at most max_q_len " + std::to_string(args.max_q_len) +
                     " rows of num_tokens " + std::to_string(args.num_tokens) + WidthHint(cu));
    }
    if (lens[s] < q_len || lens[s] > args.max_kv_len) {
      return Invalid(Entry("kv_lens", seq, lens[s]) + "; it must be in [" + std::to_string(q_len) +
                     ", " + std::to_string(args.max_kv_len) + "]" + WidthHint(lens));
    }
    if (q_len == 0) continue;
    const int64_t first = seq * args.block_table_stride;
    KU_ASSIGN_OR_RETURN(const std::vector<int32_t> pages,
                        ReadBack(args.block_tables + first, (lens[s] - 1) / args.kv.page_size + 1));
    for (size_t block = 0; block < pages.size(); ++block) {
      if (pages[block] >= 0 && pages[block] < args.kv.num_pages) continue;
      return Invalid(Entry("block_tables", first + static_cast<int64_t>(block), pages[block]) +
                     "; it must be in [0, " + std::to_string(args.kv.num_pages - 1) + "]");
    }
  }
  if (cu[seqs] != args.num_tokens) {
    return Invalid(Entry("cu_seqlens_q", args.num_seqs, cu[seqs]) + "; it must be num_tokens, " +
                   std::to_string(args.num_tokens) + WidthHint(cu));
  }
  return OkStatus();
}

}  // namespace kuiper
