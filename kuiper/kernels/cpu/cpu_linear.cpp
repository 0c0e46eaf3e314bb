// The linear layer: threads and epilogue around the micro-kernels of linear_kernel.h, for few
// tokens; linear_blocked.cpp has the rest.
//
// Parallelisation: work items over rows of W (and, for many tokens, blocks of tokens), claimed from
// an atomic counter, because a virtual CPU may be taken away at any time.
//
// Few tokens (T < kBlockedMinTokens): W streams once from the mapped file, in runs of ~256 KiB. At
// T > 1 four rows a quarter of a run apart are in flight: adjacent rows share pages and confuse the
// prefetchers, which costs 40 %. Bytes moved: W. Expected 0.95 of the read bandwidth at T = 1.
#include "kuiper/kernels/cpu/cpu_linear.h"

#include <algorithm>
#include <atomic>

#include "kuiper/base/check.h"
#include "kuiper/kernels/cpu/cpu_kernels.h"
#include "kuiper/kernels/cpu/flush_subnormals.h"
#include "kuiper/kernels/cpu/host_memory.h"
#include "kuiper/kernels/cpu/linear_job.h"

namespace kuiper::cpu {
namespace {

constexpr int kBlockedMinTokens = 8;
constexpr int kStreamBytes = 256 << 10;
constexpr int kSerialConvert = 16 << 10;  // elements of x that one thread converts sooner than two

// Converted activations take at most 4 bytes per element, in whole chunks of at most 64 bytes of
// FP32 twice over.
size_t ActivationRowBytes(int in) {
  return 4 * CeilDiv<size_t>(in, 32) * 32;
}

// Rows of W that one tile takes: `count` of a part, `apart` rows from one to the next.
struct TileRows {
  int part, first, count, apart;
};

// args.sums = x [token, token + rows) times these rows of W. args: lanes, sums and sum_stride.
void StreamTile(const LinearJob& job, int token, int rows, const TileRows& w, TileArgs args) {
  const TileFn tile = (w.count == 1 ? job.kernel.stored1 : job.kernel.stored4)[rows];
  // One row of x is contiguous, so its sub-blocks need not be visited one by one.
  const int step = job.tokens == 1 ? job.fold_k() : job.sub_k();
  Groups<kPanelRows> groups;
  for (int k0 = 0; k0 < job.in(); k0 += step) {
    const int k1 = std::min(k0 + step, job.in());
    args.x = job.X(k0, token);
    args.x_stride = job.XStride(k0);
    args.w = job.W(w.part, w.first, k0);
    args.w.stride *= w.apart;
    if (job.quantized()) {
      groups.Widen(job, w.part, {w.first, w.count, w.apart, k0, k1});
      groups.Give(job, 0, 0, &args.w);
    }
    args.k = k1 - k0;
    args.first = k0 % job.fold_k() == 0;
    args.last = k1 == job.in() || k1 % job.fold_k() == 0;
    args.add = k0 >= job.fold_k();
    tile(args);
  }
}

// y [T, rows of the range], `stride` floats from token to token, is set to the sums plus bias or,
// with `add`, grows by them.
void StreamRows(const LinearJob& job, const RowRange& range, float* y, size_t stride, bool add) {
  alignas(64) float lanes[kMaxTileRows * kPanelRows * kSumLanes];
  alignas(64) float sums[kMaxTileRows * kPanelRows];
  TileArgs args;
  args.lanes = lanes;
  args.sums = sums;
  const Tensor& bias = job.w.parts[range.part].bias;
  // One row at a time is the best pattern for the memory, where the multiply-adds of the next row
  // can start before the dependent ones of this row end; conversions or more tokens take that room.
  const bool linear = job.tokens == 1 && !job.kernel.widens;
  const int apart = linear ? 0 : (range.end - range.begin) / kPanelRows;
  const int far_end = range.begin + apart;
  const int rest = range.begin + apart * kPanelRows;  // rows after the four runs go one by one
  for (int row = range.begin; row < range.end; row = row + 1 == far_end ? rest : row + 1) {
    const TileRows w{range.part, row, row < far_end ? kPanelRows : 1, apart};
    args.sum_stride = w.count;
    for (int t = 0, rows = 0; t < job.tokens; t += rows) {
      rows = LinearJob::NextRows(job.tokens - t, job.kernel.tile_rows);
      StreamTile(job, t, rows, w, args);
      for (int n = 0; n < w.count; ++n) {
        const int at = row + n * apart;
        const float b = bias.empty() ? 0.0f : BiasAt(bias, at);
        float* to = y + t * stride + (at - range.begin);
        for (int m = 0; m < rows; ++m, to += stride) {
          const float sum = bias.empty() ? sums[m * w.count + n] : sums[m * w.count + n] + b;
          *to = add ? *to + sum : sum;
        }
      }
    }
  }
}

void ConvertTokens(const LinearJob& job, const Tensor& x, int begin, int end) {
  for (int k0 = 0; k0 < job.in(); k0 += job.sub_k()) {
    for (int t = begin; t < end; ++t) {
      job.kernel.convert(x.row<float>(t) + k0, std::min(job.sub_k(), job.in() - k0), job.X(k0, t));
    }
  }
}

void Convert(ThreadPool& pool, const LinearJob& job, const Tensor& x) {
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

void ApplyStreaming(ThreadPool& pool, const LinearJob& job, uint8_t* workspace,
                    size_t workspace_bytes) {
  // About 256 KiB of W per item, but at least four items per thread, and with SwiGLU the sums of up
  // must fit into the workspace.
  const int by_bytes = static_cast<int>(kStreamBytes / job.RowBytes(job.in()));
  const int by_threads = OutputColumns(job.w, job.epilogue) / (4 * pool.size());
  const int by_space = static_cast<int>(workspace_bytes / (job.tokens * sizeof(float)));
  const int step = std::max(16, std::min({by_bytes, by_threads, by_space}) / 16 * 16);
  const int items = CountItems(job, step);
  std::atomic<int> next{0};
  pool.Run([&](int thread) {
    const ScopedFlushSubnormals flush(job.kernel.flush_subnormals);
    float* up = reinterpret_cast<float*>(workspace + thread * workspace_bytes);
    for (int item; (item = next.fetch_add(1, std::memory_order_relaxed)) < items;) {
      const RowRange range = FindRows(job, item, step);
      float* y = job.out + range.column;
      StreamRows(job, range, y, job.out_stride, range.epilogue == Epilogue::kAdd);
      const int columns = range.end - range.begin;
      for (int t = 0; t < job.tokens && IsGelu(job.epilogue); ++t) {
        GeluRow(job.epilogue, y + t * job.out_stride, columns);
      }
      if (!job.paired()) continue;
      StreamRows(job, UpRows(range), up, columns, /*add=*/false);
      for (int t = 0; t < job.tokens; ++t) {
        SiluMulRow(y + t * job.out_stride, up + t * columns, columns);
      }
    }
  });
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
  return BlocksSize(ActivationRowBytes(max_features) * max_tokens) +
         BlocksSize(BlockedScratchBytes(max_tokens, max_features) * pool_.size());
}

Status CpuLinear::Reserve(int max_tokens, int max_features) {
  max_tokens = std::max(max_tokens, max_tokens_);
  max_features = std::max(max_features, max_features_);
  if (max_tokens == max_tokens_ && max_features == max_features_) return OkStatus();
  const size_t row_bytes = ActivationRowBytes(max_features);
  const size_t slice_bytes = BlockedScratchBytes(max_tokens, max_features);
  KU_ASSIGN_OR_RETURN(Buffer activations, AllocateBlocks(row_bytes * max_tokens));
  KU_ASSIGN_OR_RETURN(Buffer workspace, AllocateBlocks(slice_bytes * pool_.size()));
  activations_ = std::move(activations);
  workspace_ = std::move(workspace);
  workspace_slice_ = slice_bytes;
  max_tokens_ = max_tokens;
  max_features_ = max_features;
  return OkStatus();
}

void CpuLinear::Apply(Tensor out, Tensor x, const Linear& w, Epilogue epilogue) {
  const int tokens = static_cast<int>(x.rows());
  KU_CHECK(tokens <= max_tokens_ && w.in <= max_features_, "Reserve was called with less");
  if (tokens == 0) return;
  const LinearJob job{(*kernels_)[w.format()],
                      w,
                      epilogue,
                      out.ptr<float>(),
                      static_cast<size_t>(out.stride[0]),
                      static_cast<uint8_t*>(activations_.data()),
                      tokens};
  Convert(pool_, job, x);
  const auto apply = tokens < kBlockedMinTokens ? ApplyStreaming : ApplyBlocked;
  apply(pool_, job, static_cast<uint8_t*>(workspace_.data()), workspace_slice_);
}

std::vector<std::string> CpuLinear::InstructionSets() {
  std::vector<std::string> names;
  for (const LinearKernelSet& set : LinearKernelSets()) names.emplace_back(set.name);
  return names;
}

std::string CpuLinear::KernelName() {
  return LinearKernelSets().front().name;
}

void Run(const Resources& resources, const ApplyArgs& args) {
  resources.linear.Apply(args.out, args.x, args.linear, args.epilogue);
}

}  // namespace kuiper::cpu
