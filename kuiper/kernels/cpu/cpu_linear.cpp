// The linear layer: converts the activations. linear_streamed.cpp has the products of few tokens,
// linear_blocked.cpp those of many.
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

constexpr int kSerialConvert = 16 << 10;  // elements of x that one thread converts sooner than two
constexpr int kTokensPerItem = 4;         // of those that are not in tiles

// Converted activations take at most 4 bytes per element, in whole chunks of at most 64 bytes of
// FP32 twice over, and in whole groups of tokens; panels have a line per lane between them.
size_t ActivationBytes(int tokens, int in) {
  const size_t groups = CeilDiv(tokens, kSumLanes) + 1, folds = CeilDiv(in, 16 * kFoldChunks);
  return 4 * CeilDiv<size_t>(in, 32) * 32 * (groups * kSumLanes + kMaxRest) +
         groups * folds * kSumLanes * 2 * kLine;
}

// Tokens that are not in tiles, [begin, end).
void ConvertTokens(const LinearJob& job, const Tensor& x, int first, int begin, int end) {
  for (int k0 = 0; k0 < job.in(); k0 += job.sub_k()) {
    for (int t = begin; t < end; ++t) {
      const float* row = x.row<float>(first + t) + k0;
      job.kernel.convert(row, std::min(job.sub_k(), job.in() - k0), job.X(k0, t));
    }
  }
}

// A group of 16 tokens, those that are there, as columns of its tile.
void ConvertGroup(const LinearJob& job, const Tensor& x, int group) {
  const int first = group * kSumLanes, tile = group / job.tile_groups();
  const int tokens = std::min(kSumLanes, job.tiled_tokens() - first);
  const size_t at = group % job.tile_groups() * kSumLanes * sizeof(float);
  const OuterTiles& outer = job.OuterOf(tile);
  for (int k0 = 0; k0 < job.in(); k0 += job.fold_k()) {
    const float* rows[kSumLanes];
    for (int t = 0; t < tokens; ++t) rows[t] = x.row<float>(first + t) + k0;
    const int elements = job.FoldAt(k0);
    job.kernel.pack_tokens(rows, tokens, elements, outer.columns, job.Panel(k0, tile) + at,
                           outer.PanelStride(job.Steps(elements)));
  }
}

void Convert(ThreadPool& pool, const LinearJob& job, const Tensor& x) {
  const LinearJob rest = job.Rest();
  const int groups = job.groups(), items = groups + CeilDiv(rest.tokens, kTokensPerItem);
  const auto convert = [&](int item) {
    if (item < groups) return ConvertGroup(job, x, item);
    const int begin = (item - groups) * kTokensPerItem;
    ConvertTokens(rest, x, job.tiled_tokens(), begin,
                  std::min(begin + kTokensPerItem, rest.tokens));
  };
  if (static_cast<int64_t>(job.tokens) * job.in() <= kSerialConvert) {
    for (int item = 0; item < items; ++item) convert(item);
    return;
  }
  std::atomic<int> next{0};
  pool.Run([&](int) {
    for (int i; (i = next.fetch_add(1, std::memory_order_relaxed)) < items;) convert(i);
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
  return BlocksSize(ActivationBytes(max_tokens, max_features)) +
         BlocksSize(BlockedScratchBytes(max_tokens, max_features) * pool_.size());
}

Status CpuLinear::Reserve(int max_tokens, int max_features) {
  max_tokens = std::max(max_tokens, max_tokens_);
  max_features = std::max(max_features, max_features_);
  if (max_tokens == max_tokens_ && max_features == max_features_) return OkStatus();
  const size_t slice_bytes = BlockedScratchBytes(max_tokens, max_features);
  KU_ASSIGN_OR_RETURN(Buffer activations,
                      AllocateBlocks(ActivationBytes(max_tokens, max_features)));
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
  const auto apply = job.tiles() == 0 ? ApplyStreamed : ApplyBlocked;
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
