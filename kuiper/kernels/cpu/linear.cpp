// The linear layer: blocking, threads and epilogue around the micro-kernels of linear_kernel.h.
//
// Parallelisation: work items over rows of W (and, for many tokens, blocks of tokens), claimed from
// an atomic counter, because a virtual CPU may be taken away at any time.
//
// Few tokens (T < kBlockedMinTokens): W streams once from the mapped file, in runs of ~256 KiB. At
// T > 1 four rows a quarter of a run apart are in flight: adjacent rows share pages and confuse the
// prefetchers, which costs 40 %. Bytes moved: W. Expected 0.95 of the read bandwidth at T = 1.
//
// Many tokens: a block of 64 rows of W by one fold block is copied (16-bit: widened where needed)
// into the L2 cache as panels of 4 rows; a tile of 6 rows of x stays in L1; the next block is
// prefetched meanwhile. Bytes moved: W once per ~512 tokens. Expected 0.85 of the multiply-add peak
// at T = 512; between 6 and 32 tokens memory and arithmetic overlap only partly (0.5-0.8 of the
// tighter limit).
#include "kuiper/kernels/cpu/linear.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#ifdef __linux__
#include <sys/mman.h>
#endif

#include "kuiper/base/check.h"
#include "kuiper/base/half.h"
#include "kuiper/kernels/cpu/flush_subnormals.h"
#include "kuiper/kernels/cpu/linear_kernel.h"

namespace kuiper {
namespace {

constexpr int kBlockedMinTokens = 6;
constexpr int kTokenBlock = 510;    // tokens that share one copy of a block of W
constexpr int kMinTokenBlock = 48;  // smaller blocks do not pay for copying W again
constexpr int kWeightBlock = 64;    // rows of W in L2
constexpr int kFewTokens = 24;      // up to here a copy of W is not read often enough to pay
constexpr int kFewWeightBlock = 16;
constexpr int kStreamBytes = 256 << 10;
constexpr int kSerialConvert = 16 << 10;  // elements of x that one thread converts sooner than two
constexpr size_t kLine = 64;
constexpr size_t kHugePage = size_t{2} << 20;

template <typename Int>
constexpr Int CeilDiv(Int a, Int b) {
  return (a + b - 1) / b;
}
constexpr size_t Align(size_t bytes) {
  return CeilDiv(bytes, kLine) * kLine;
}

// Vectors of a mapped file may be unaligned.
float BiasAt(const Tensor& bias, int i) {
  const char* at = static_cast<const char*>(bias.data) + i * DTypeBytes(bias.dtype);
  if (bias.dtype == DType::kF32) {
    float value;
    memcpy(&value, at, sizeof(value));
    return value;
  }
  uint16_t bits;
  memcpy(&bits, at, sizeof(bits));
  return bias.dtype == DType::kF16 ? ToFloat(Half{bits}) : ToFloat(BFloat16{bits});
}

// Huge pages: a block that is scattered over 4 KiB pages conflicts with itself in L2.
StatusOr<Buffer> AllocateScratch(size_t bytes) {
  const size_t alignment = bytes >= kHugePage ? kHugePage : kLine;
  bytes = std::max(CeilDiv(bytes, alignment), size_t{1}) * alignment;
  void* data = std::aligned_alloc(alignment, bytes);
  if (data == nullptr) {
    return Status(StatusCode::kResourceExhausted,
                  "no memory for " + std::to_string(bytes >> 20) + " MiB of linear layer scratch",
                  "lower the number of tokens per step");
  }
#ifdef MADV_HUGEPAGE
  if (alignment == kHugePage) madvise(data, bytes, MADV_HUGEPAGE);  // best effort
#endif
  return Buffer(data, bytes, Device{}, [](void* p, size_t) { std::free(p); });
}

// One call of Apply.
struct Job {
  const LinearKernel& kernel;
  const Linear& w;
  float* out;
  size_t out_stride;
  uint8_t* activations;  // [sub-block of K][T][chunks of the sub-block]
  int tokens;

  int in() const { return w.in; }
  int fold_k() const { return kernel.chunk * kFoldChunks; }
  int sub_k() const { return kernel.chunk * kernel.sub_chunks; }
  int chunks() const { return CeilDiv(w.in, kernel.chunk); }
  size_t RowBytes() const { return static_cast<size_t>(w.in) * DTypeBytes(kernel.weights); }
  // Bytes from one row of x to the next in the sub-block that starts at element k0.
  size_t XStride(int k0) const {
    return static_cast<size_t>(std::min(kernel.sub_chunks, chunks() - k0 / kernel.chunk)) *
           kernel.chunk_bytes;
  }
  uint8_t* X(int k0, int token) const {
    return activations + static_cast<size_t>(k0 / kernel.chunk) * kernel.chunk_bytes * tokens +
           token * XStride(k0);
  }
  const uint8_t* W(int part, int row, int k0) const {
    return static_cast<const uint8_t*>(w.parts[part].weight.data) + row * RowBytes() +
           static_cast<size_t>(k0) * DTypeBytes(kernel.weights);
  }
  // The rest of a run of tokens is cut into equal parts rather than a full and a thin one.
  static int NextRows(int left, int full) {
    return left >= 2 * full || left <= full ? std::min(left, full) : (left + 1) / 2;
  }
};

// Maps a work item to rows [begin, end) of one part, whose first output column is `column`.
struct RowRange {
  int part = 0, begin = 0, end = 0, column = 0;
};
RowRange FindRows(const Linear& w, int item, int step) {
  int column = 0;
  for (int part = 0; part < w.num_parts; ++part) {
    const int rows = static_cast<int>(w.parts[part].weight.shape[0]);
    const int items = CeilDiv(rows, step);
    if (item < items) {
      const int begin = item * step;
      return {part, begin, std::min(rows, begin + step), column};
    }
    item -= items;
    column += rows;
  }
  return {};
}
int CountItems(const Linear& w, int step) {
  int items = 0;
  for (int part = 0; part < w.num_parts; ++part) {
    items += CeilDiv(static_cast<int>(w.parts[part].weight.shape[0]), step);
  }
  return items;
}

// ---- few tokens: W streams from the file ----

// sums [rows][NR] = x [t, t + rows) times NR rows of W, `w_stride` bytes apart.
void StreamTile(const Job& job, TileFn tile, int token, const uint8_t* w, size_t w_stride,
                int num_w, float* lanes, float* sums) {
  // One row of x is contiguous, so its sub-blocks need not be visited one by one.
  const int step = job.tokens == 1 ? job.fold_k() : job.sub_k();
  TileArgs args;
  args.w_stride = w_stride;
  args.lanes = lanes;
  args.sums = sums;
  args.sum_stride = num_w;
  for (int k0 = 0; k0 < job.in(); k0 += step) {
    const int k1 = std::min(k0 + step, job.in());
    args.x = job.X(k0, token);
    args.x_stride = job.XStride(k0);
    args.w = w + static_cast<size_t>(k0) * DTypeBytes(job.kernel.weights);
    args.k = k1 - k0;
    args.first = k0 % job.fold_k() == 0;
    args.last = k1 == job.in() || k1 % job.fold_k() == 0;
    args.add = k0 >= job.fold_k();
    tile(args);
  }
}

void StreamRows(const Job& job, const RowRange& range) {
  alignas(64) float lanes[kMaxTileRows * kPanelRows * kLanes];
  alignas(64) float sums[kMaxTileRows * kPanelRows];
  const Tensor& bias = job.w.parts[range.part].bias;
  // One row at a time is the best pattern for the memory, where the multiply-adds of the next row
  // can start before the dependent ones of this row end; conversions or more tokens take that room.
  const bool linear = job.tokens == 1 && !job.kernel.widens;
  const int apart = linear ? 0 : (range.end - range.begin) / kPanelRows;
  const int far_end = range.begin + apart;
  const int rest = range.begin + apart * kPanelRows;  // rows after the four runs go one by one
  for (int row = range.begin; row < range.end; row = row + 1 == far_end ? rest : row + 1) {
    const bool far = row < far_end;
    const int num_w = far ? kPanelRows : 1;
    for (int t = 0, rows = 0; t < job.tokens; t += rows) {
      rows = Job::NextRows(job.tokens - t, job.kernel.tile_rows);
      StreamTile(job, far ? job.kernel.file4[rows] : job.kernel.file1[rows], t,
                 job.W(range.part, row, 0), apart * job.RowBytes(), num_w, lanes, sums);
      for (int n = 0; n < num_w; ++n) {
        const int at = row + n * apart;
        const float b = bias.empty() ? 0.0f : BiasAt(bias, at);
        float* y = job.out + t * job.out_stride + range.column + at;
        for (int m = 0; m < rows; ++m) {
          const float sum = sums[m * num_w + n];
          y[m * job.out_stride] = bias.empty() ? sum : sum + b;
        }
      }
    }
  }
}

// ---- many tokens: blocks of W in L2 ----

// Walks over rows of W line by line and prefetches them into L2, a few lines per tile: in linear
// bursts, since interleaved rows would look like random access to the memory.
struct Prefetcher {
  const uint8_t* row = nullptr;
  size_t stride = 0;
  int rows = 0, lines = 0, line = 0;

  void Fetch(int count) {
    for (; count > 0 && rows > 0; --count) {
      __builtin_prefetch(row + line * kLine, 0, 2);
      if (++line == lines) {
        line = 0;
        row += stride;
        --rows;
      }
    }
  }
};

// Slices of a thread's workspace.
struct Workspace {
  uint8_t* panels;  // [sub-block][panel][chunk][4][chunk_bytes]
  float* lanes;     // [panel][tile rows][4][16]
  float* sums;      // [tokens][columns]: of a tile, or of all tokens when K has several fold blocks
};
size_t PanelBytes(int in) {
  // 64 rows of 16-element chunks of 4 bytes or 32-element ones of 2, or 32 rows of the latter in
  // FP32.
  const size_t k = Align(in);
  return kWeightBlock * std::max(std::min(k, size_t{2048}) * 4, std::min(k, size_t{4096}) * 2);
}
constexpr size_t kLanesBytes = sizeof(float) * kWeightBlock * kMaxTileRows * kLanes;
constexpr size_t SumsBytes(int tokens) {
  return Align(sizeof(float) * kWeightBlock * std::max(tokens, kMaxTileRows));
}
size_t WorkspaceBytes(int tokens, int in) {
  return PanelBytes(in) + kLanesBytes + SumsBytes(std::min(tokens, kTokenBlock + kMaxTileRows));
}

// Converted activations take at most 4 bytes per element, in whole chunks of at most 64 bytes of
// FP32 twice over.
size_t ActivationRowBytes(int in) {
  return 4 * CeilDiv<size_t>(in, 32) * 32;
}

// How one call with many tokens is cut.
struct Blocking {
  int rows = 0;       // of W per block
  bool copy = false;  // W into panels; else tiles read the file
  int tokens = 0;     // per block
  int items = 0;      // blocks of W times blocks of tokens
  int weight_items = 0;
};
Blocking ChooseBlocking(const Job& job, int threads) {
  Blocking b;
  const bool few = job.tokens <= kFewTokens;
  b.copy = !few;
  // Panels that widen 16-bit weights take twice the space.
  b.rows = few ? kFewWeightBlock : job.kernel.chunk_bytes > 64 ? kWeightBlock / 2 : kWeightBlock;
  b.weight_items = CountItems(job.w, b.rows);
  int blocks = CeilDiv(job.tokens, kTokenBlock);
  blocks =
      std::max(blocks, std::min(CeilDiv(4 * threads, b.weight_items), job.tokens / kMinTokenBlock));
  b.tokens = CeilDiv(CeilDiv(job.tokens, blocks), kMaxTileRows) * kMaxTileRows;
  b.items = b.weight_items * CeilDiv(job.tokens, b.tokens);
  return b;
}

void PackBlock(const Job& job, const RowRange& range, int kb, int ke, bool copy, uint8_t* panels) {
  const int rows = range.end - range.begin;
  const int num_panels = CeilDiv(rows, kPanelRows);
  for (int k0 = kb; k0 < ke; k0 += job.sub_k()) {
    for (int p = 0; p < num_panels; ++p, panels += kPanelRows * job.XStride(k0)) {
      const int left = rows - p * kPanelRows;
      if (!copy && left >= kPanelRows) continue;  // thin panels are always padded copies
      job.kernel.pack(job.W(range.part, range.begin + p * kPanelRows, k0), job.RowBytes(),
                      std::min(left, kPanelRows), std::min(job.sub_k(), ke - k0), panels);
    }
  }
}

// Writes sums [count][stride] plus bias to the output rows [token, token + count).
void WriteSums(const Job& job, const RowRange& range, int token, int count, const float* sums,
               int stride) {
  const int columns = range.end - range.begin;
  const Tensor& bias = job.w.parts[range.part].bias;
  float b[kWeightBlock];
  if (!bias.empty()) {
    for (int n = 0; n < columns; ++n) b[n] = BiasAt(bias, range.begin + n);
  }
  for (int m = 0; m < count; ++m, sums += stride) {
    float* y = job.out + (token + m) * job.out_stride + range.column + range.begin;
    if (bias.empty()) {
      memcpy(y, sums, columns * sizeof(float));
    } else {
      for (int n = 0; n < columns; ++n) y[n] = sums[n] + b[n];
    }
  }
}

// All panels of one block times `count` <= kMaxTileRows rows of x, over one fold block [kb, ke).
void BlockTile(const Job& job, const RowRange& range, bool copy, int kb, int ke, int token,
               int count, const Workspace& space, float* sums, Prefetcher& next, int next_lines) {
  const int rows = range.end - range.begin;
  const int num_panels = CeilDiv(rows, kPanelRows);
  const uint8_t* panel = space.panels;
  TileArgs args;
  args.w_stride = job.RowBytes();
  args.sum_stride = num_panels * kPanelRows;
  args.add = kb > 0;
  for (int k0 = kb; k0 < ke; k0 += job.sub_k()) {
    args.x_stride = job.XStride(k0);
    args.k = std::min(job.sub_k(), ke - k0);
    args.first = k0 == kb;
    args.last = k0 + job.sub_k() >= ke;
    // The tile of x that follows: same rows, next sub-block, or the next rows.
    const int next_k = args.last ? kb : k0 + job.sub_k();
    const int next_token = args.last ? token + count : token;
    const size_t x_bytes = next_token < job.tokens ? count * job.XStride(next_k) : 0;
    Prefetcher x{x_bytes > 0 ? job.X(next_k, next_token) : nullptr, 0, 1,
                 static_cast<int>(x_bytes / kLine)};
    if (x.lines == 0) x.rows = 0;
    const int x_lines = CeilDiv(x.lines, num_panels);
    for (int p = 0; p < num_panels; ++p, panel += kPanelRows * args.x_stride) {
      next.Fetch(next_lines);
      x.Fetch(x_lines);
      const bool packed = copy || rows - p * kPanelRows < kPanelRows;
      args.w = packed ? panel : job.W(range.part, range.begin + p * kPanelRows, k0);
      // Where a tile has fewer rows, two of them use a panel while it is in L1.
      for (int m = 0, tile = 0; m < count; m += tile) {
        tile = Job::NextRows(count - m, job.kernel.tile_rows);
        args.x = job.X(k0, token + m);
        args.lanes = space.lanes + (p * kMaxTileRows + m) * kPanelRows * kLanes;
        args.sums = sums + m * args.sum_stride + p * kPanelRows;
        (packed ? job.kernel.panel : job.kernel.file4)[tile](args);
      }
    }
  }
}

// One block of W times the tokens [t0, t1). `next` is the block this thread takes afterwards.
void ApplyBlock(const Job& job, const RowRange& range, const RowRange& next, bool copy, int t0,
                int t1, const Workspace& space) {
  const int columns = CeilDiv(range.end - range.begin, kPanelRows) * kPanelRows;
  const int tiles = CeilDiv(t1 - t0, kMaxTileRows);
  const bool one_fold = job.in() <= job.fold_k();
  for (int kb = 0; kb < job.in(); kb += job.fold_k()) {
    const int ke = std::min(job.in(), kb + job.fold_k());
    const bool last = ke == job.in();
    PackBlock(job, range, kb, ke, copy, space.panels);
    const RowRange& ahead = last ? next : range;
    const int ahead_k = last ? 0 : ke;
    const int fetch_k = std::min(job.fold_k(), job.in() - ahead_k);
    Prefetcher fetch;
    if (ahead.end > ahead.begin) {
      const size_t bytes = fetch_k * DTypeBytes(job.kernel.weights);
      fetch = {job.W(ahead.part, ahead.begin, ahead_k), job.RowBytes(), ahead.end - ahead.begin,
               static_cast<int>(CeilDiv(bytes, kLine))};
    }
    const int calls = tiles * (columns / kPanelRows) * CeilDiv(ke - kb, job.sub_k());
    const int lines = CeilDiv(fetch.lines * fetch.rows, calls);
    for (int t = t0, count = 0; t < t1; t += count) {
      count = Job::NextRows(t1 - t, kMaxTileRows);
      float* sums = one_fold ? space.sums : space.sums + static_cast<size_t>(t - t0) * columns;
      if (last && tiles > 1) {
        for (int m = 0; m < count; ++m) {
          const float* y = job.out + (t + m) * job.out_stride + range.column + range.begin;
          for (int n = 0; n < columns; n += 16) __builtin_prefetch(y + n, 1);
        }
      }
      BlockTile(job, range, copy, kb, ke, t, count, space, sums, fetch, lines);
      if (last) WriteSums(job, range, t, count, sums, columns);
    }
  }
}

void ConvertTokens(const Job& job, const Tensor& x, int begin, int end) {
  for (int k0 = 0; k0 < job.in(); k0 += job.sub_k()) {
    for (int t = begin; t < end; ++t) {
      job.kernel.convert(x.row<float>(t) + k0, std::min(job.sub_k(), job.in() - k0), job.X(k0, t));
    }
  }
}

void Convert(ThreadPool& pool, const Job& job, const Tensor& x) {
  if (static_cast<int64_t>(job.tokens) * job.in() <= kSerialConvert) {
    ConvertTokens(job, x, 0, job.tokens);
    return;
  }
  constexpr int kStep = 4;
  std::atomic<int> next{0};
  pool.Run([&](int) {
    for (int t; (t = next.fetch_add(kStep, std::memory_order_relaxed)) < job.tokens;) {
      ConvertTokens(job, x, t, std::min(t + kStep, job.tokens));
    }
  });
}

void ApplyStreaming(ThreadPool& pool, const Job& job) {
  // About 256 KiB of W per item, but at least four items per thread.
  const int by_bytes = static_cast<int>(kStreamBytes / job.RowBytes());
  const int by_threads = job.w.out / (4 * pool.size());
  const int step = std::max(16, std::min(by_bytes, by_threads) / 16 * 16);
  const int items = CountItems(job.w, step);
  std::atomic<int> next{0};
  pool.Run([&](int) {
    const ScopedFlushSubnormals flush(job.kernel.flush_subnormals);
    for (int item; (item = next.fetch_add(1, std::memory_order_relaxed)) < items;) {
      StreamRows(job, FindRows(job.w, item, step));
    }
  });
}

void ApplyBlocked(ThreadPool& pool, const Job& job, uint8_t* workspace, size_t workspace_bytes) {
  const Blocking blocking = ChooseBlocking(job, pool.size());
  std::atomic<int> next_item{0};
  pool.Run([&](int thread) {
    const ScopedFlushSubnormals flush(job.kernel.flush_subnormals);
    uint8_t* base = workspace + thread * workspace_bytes;
    const size_t panel_bytes = PanelBytes(job.in());
    const Workspace space{base, reinterpret_cast<float*>(base + panel_bytes),
                          reinterpret_cast<float*>(base + panel_bytes + kLanesBytes)};
    const auto take = [&] { return next_item.fetch_add(1, std::memory_order_relaxed); };
    const auto rows = [&](int item) {
      return item < blocking.items ? FindRows(job.w, item % blocking.weight_items, blocking.rows)
                                   : RowRange{};
    };
    // The next item is claimed before this one is computed, so that its weights are prefetched into
    // the cache of the core that will use them.
    for (int item = take(), next = 0; item < blocking.items; item = next) {
      next = take();
      const int t0 = item / blocking.weight_items * blocking.tokens;
      ApplyBlock(job, rows(item), rows(next), blocking.copy, t0,
                 std::min(t0 + blocking.tokens, job.tokens), space);
    }
  });
}

void CheckCall(const Tensor& out, const Tensor& x, const Linear& w) {
  KU_CHECK(x.rank == 2 && out.rank == 2 && x.dtype == DType::kF32 && out.dtype == DType::kF32);
  KU_CHECK(x.shape[1] == w.in && w.in > 0 && out.shape[1] == w.out && out.rows() == x.rows());
  KU_CHECK(x.stride[1] == 1 && out.stride[1] == 1);
  KU_CHECK(w.num_parts >= 1 && w.num_parts <= Linear::kMaxParts);
  int64_t columns = 0;
  for (int i = 0; i < w.num_parts; ++i) {
    const Tensor& weight = w.parts[i].weight;
    const Tensor& bias = w.parts[i].bias;
    KU_CHECK(weight.rank == 2 && weight.shape[1] == w.in && weight.is_dense());
    KU_CHECK(weight.dtype == w.parts[0].weight.dtype, "parts of one linear layer differ in type");
    KU_CHECK(bias.empty() || (bias.is_dense() && bias.numel() == weight.shape[0]));
    columns += weight.shape[0];
  }
  KU_CHECK(columns == w.out);
}

}  // namespace

CpuLinear::CpuLinear(ThreadPool& pool, std::string_view instruction_set) : pool_(pool) {
  for (const LinearKernelSet& set : LinearKernelSets()) {
    if (instruction_set.empty() || instruction_set == set.name) {
      kernels_ = &set;
      return;
    }
  }
  KU_CHECK(false, "this machine cannot run " + std::string(instruction_set));
}

size_t CpuLinear::ScratchBytes(int max_tokens, int max_features) const {
  return ActivationRowBytes(max_features) * max_tokens +
         WorkspaceBytes(max_tokens, max_features) * pool_.size();
}

Status CpuLinear::Reserve(int max_tokens, int max_features) {
  max_tokens = std::max(max_tokens, max_tokens_);
  max_features = std::max(max_features, max_features_);
  if (max_tokens == max_tokens_ && max_features == max_features_) return OkStatus();
  const size_t row_bytes = ActivationRowBytes(max_features);
  const size_t slice_bytes = WorkspaceBytes(max_tokens, max_features);
  KU_ASSIGN_OR_RETURN(Buffer activations, AllocateScratch(row_bytes * max_tokens));
  KU_ASSIGN_OR_RETURN(Buffer workspace, AllocateScratch(slice_bytes * pool_.size()));
  activations_ = std::move(activations);
  workspace_ = std::move(workspace);
  workspace_slice_ = slice_bytes;
  max_tokens_ = max_tokens;
  max_features_ = max_features;
  return OkStatus();
}

void CpuLinear::Apply(Tensor out, Tensor x, const Linear& w) {
  CheckCall(out, x, w);
  const int tokens = static_cast<int>(x.rows());
  KU_CHECK(tokens <= max_tokens_ && w.in <= max_features_, "Reserve was called with less");
  if (tokens == 0) return;
  const Job job{kernels_->For(w.parts[0].weight.dtype),
                w,
                out.ptr<float>(),
                static_cast<size_t>(out.stride[0]),
                static_cast<uint8_t*>(activations_.data()),
                tokens};
  Convert(pool_, job, x);
  if (tokens < kBlockedMinTokens) {
    ApplyStreaming(pool_, job);
  } else {
    ApplyBlocked(pool_, job, static_cast<uint8_t*>(workspace_.data()), workspace_slice_);
  }
}

std::vector<std::string> CpuLinear::InstructionSets() {
  std::vector<std::string> names;
  for (const LinearKernelSet& set : LinearKernelSets()) names.emplace_back(set.name);
  return names;
}

std::string CpuLinear::KernelName() {
  return LinearKernelSets().front().name;
}

}  // namespace kuiper
