// Sample: one block per row, with the same definition as on the CPU (cpu/sample.cpp). The steps are
// biases, penalties, z = (x - max) / temperature, top-k, top-p, min-p. The result is the argmax of
// z plus Gumbel noise that depends only on (seed, step, id). Nothing is sorted, see
// sample_filter.cuh. A row with NaN or +inf, or without any finite logit, gives kNotFiniteToken.
//
// Greedy reads the logits once, top-k and min-p twice, top-p three times, from L2 (0.6 MB per row
// at a vocabulary of 152k). A draw without filters also writes and reads z. One block per row is
// bound by the L2 bandwidth of one SM: about 10 us per pass expected.
#include "kuiper/base/check.h"
#include "kuiper/kernels/common/philox.h"
#include "kuiper/kernels/cuda/kernels.h"
#include "kuiper/kernels/cuda/launch.h"
#include "kuiper/kernels/cuda/matrix_arg.h"
#include "kuiper/kernels/cuda/sample_filter.cuh"

namespace kuiper::KU_GPU {
namespace {

// A bound above -log(-log1p(-2^-33)), the largest noise that OpenUniform can give.
constexpr float kMaxNoise = 23.0f;

struct SampleParams {
  MatrixArg logits;  // [R, vocab] f32
  float* z;          // [R, vocab] scratch
  int vocab;         // ids that may be chosen
  int32_t* tokens;
  const SampleRow* rows;
  const int32_t *penalty_tokens, *penalty_counts, *bias_tokens;
  const float* bias_values;
};

// The rank is larger for larger values, and for smaller ids of equal value.
__device__ __forceinline__ Mass RankOfBits(uint32_t bits, int32_t id) {
  return static_cast<Mass>(bits) << 32 | static_cast<uint32_t>(~id);
}
__device__ __forceinline__ Mass Rank(float value, int32_t id) {
  return RankOfBits(OrderedBits(value), id);
}
__device__ __forceinline__ int32_t IdOfRank(Mass rank) {
  return static_cast<int32_t>(~static_cast<uint32_t>(rank));
}
__device__ __forceinline__ float ValueOfRank(Mass rank) {
  return FromOrderedBits(static_cast<uint32_t>(rank >> 32));
}

// Returns the largest rank of the block; contains barriers.
__device__ Mass BlockBest(Mass rank, SampleMemory& m) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    const Mass other = __shfl_xor_sync(kFullWarp, rank, offset);
    rank = other > rank ? other : rank;
  }
  __syncthreads();
  if (threadIdx.x == 0) m.best = 0;
  __syncthreads();
  if (threadIdx.x % kWarpSize == 0) atomicMax(&m.best, rank);
  __syncthreads();
  return m.best;
}

__device__ __forceinline__ float GumbelNoise(uint32_t word) {
  return -logf(-log1pf(-OpenUniform(word)));
}

// Returns the id with the largest z plus noise among those that `keeps(id, z)` admits.
template <typename Keeps>
__device__ int32_t Draw(const Items& items, uint64_t seed, int32_t step, int32_t max_id,
                        SampleMemory& m, const Keeps& keeps) {
  Mass best = Rank(-INFINITY, max_id);
  const int tid = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  if (items.ids != nullptr) {
    for (int i = tid; i < items.count; i += threads) {
      const int32_t id = items.ids[i];
      if (!keeps(id, items.z[i])) continue;
      const Philox4x32 words = SampleBits(seed, step, id / 4);
      const uint32_t even = id % 4 < 2 ? words.word[0] : words.word[2];
      const uint32_t odd = id % 4 < 2 ? words.word[1] : words.word[3];
      const uint32_t word = id % 2 == 0 ? even : odd;
      const Mass rank = Rank(items.z[i] + GumbelNoise(word), id);
      best = rank > best ? rank : best;
    }
    return IdOfRank(BlockBest(best, m));
  }
  float threshold = -INFINITY;  // smaller values cannot exceed this thread's best
  for (int block = tid; block * 4 < items.count; block += threads) {
    float v[4];
    bool any = false;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int id = block * 4 + j;
      v[j] = id < items.count ? items.z[id] : -INFINITY;
      if (!(v[j] > threshold) || !keeps(id, v[j])) v[j] = -INFINITY;
      any = any || v[j] > -INFINITY;
    }
    if (!any) continue;
    const Philox4x32 words = SampleBits(seed, step, block);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (!(v[j] > -INFINITY)) continue;
      const Mass rank = Rank(v[j] + GumbelNoise(words.word[j]), block * 4 + j);
      best = rank > best ? rank : best;
    }
    threshold = ValueOfRank(best) - kMaxNoise;
  }
  return IdOfRank(BlockBest(best, m));
}

// Applies the row's penalties to z.
__device__ void Penalise(const SampleParams& p, const SampleRow& row, float* z) {
  const SamplingParams& params = row.params;
  const int first = row.first_penalty, end = first + row.num_penalties;
  const int tid = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int i = first + tid; i < end; i += threads) {
    const int32_t id = p.penalty_tokens[i];
    if (id < 0 || id >= p.vocab) continue;
    const int32_t count = p.penalty_counts[i];
    float v = z[id];
    v = v > 0.0f ? v / params.repetition_penalty : v * params.repetition_penalty;
    v -= params.frequency_penalty * static_cast<float>(count);
    if (count > 0) v -= params.presence_penalty;
    z[id] = v;
  }
  __syncthreads();
}

// Stores x with the row's biases and penalties in z and returns z; returns x if the row has none.
__device__ const float* Adjust(const SampleParams& p, const SampleRow& row, const float* x,
                               float* z) {
  const bool is_penalised = row.num_penalties > 0 && row.params.has_penalties();
  if (row.num_biases == 0 && !is_penalised) return x;
  const int tid = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int id = tid; id < p.vocab; id += threads) z[id] = x[id];
  __syncthreads();
  for (int i = tid; i < row.num_biases; i += threads) {
    const int32_t id = p.bias_tokens[row.first_bias + i];
    if (id >= 0 && id < p.vocab) z[id] += p.bias_values[row.first_bias + i];
  }
  __syncthreads();
  if (is_penalised) Penalise(p, row, z);
  return z;
}

// Draws an id from the filtered row; `z` is scratch memory for all ids.
__device__ int32_t DrawFiltered(const Row& row, uint64_t seed, int32_t step, int32_t max_id,
                                float* z, SampleMemory& m) {
  Mass target = 0, total = 0;
  if (row.top_p < 1.0f && row.top_k == 0) {
    Mass own = 0;
    ForShare(row.x, row.n, [&](int, float value) { own += MassOf(row.Z(value)); });
    total = SumOfMass(own, m);
    target = TopPTarget(row.top_p, total);
  }
  Items items{z, nullptr, row.n};
  const float least = LeastZ(row, total, target, m);
  int num_candidates = row.n;
  if (least > -INFINITY) num_candidates = Gather(row, least, m);
  if (least > -INFINITY && num_candidates <= kMaxCandidates) {
    items = {m.z, m.ids, num_candidates};
  } else {
    for (int id = static_cast<int>(threadIdx.x); id < row.n; id += static_cast<int>(blockDim.x)) {
      z[id] = row.Z(row.x[id]);
    }
    __syncthreads();
  }
  Border border;
  if (row.top_k > 0) border = TopK(items, row.top_k, m);
  if (row.top_p < 1.0f) {
    if (row.top_k > 0) {
      Mass own = 0;
      for (int i = static_cast<int>(threadIdx.x); i < items.count;
           i += static_cast<int>(blockDim.x)) {
        if (border.Keeps(OrderedBits(items.z[i]), items.id(i))) own += MassOf(items.z[i]);
      }
      total = SumOfMass(own, m);
      target = TopPTarget(row.top_p, total);
    }
    border = TopP(items, target, border, m);
  }
  const float share = row.min_p > 0.0f ? row.min_p : 0.0f;
  return Draw(items, seed, step, max_id, m, [&](int32_t id, float v) {
    return border.Keeps(OrderedBits(v), id) && expf(v) >= share;
  });
}

__global__ void __launch_bounds__(kSampleThreads)
    SampleKernel(const __grid_constant__ SampleParams p) {
  KU_SHARED(m, SampleMemory);
  AwaitEarlierKernels();
  const int r = static_cast<int>(blockIdx.x), n = p.vocab;
  const int tid = static_cast<int>(threadIdx.x);
  float* z = p.z + r * SampleRowFloats(n);
  const SampleRow& own = p.rows[r];
  const float* x = Adjust(p, own, reinterpret_cast<const float*>(p.logits.Row(r)), z);

  if (tid == 0) m.invalid = 0;
  uint32_t largest = OrderedBits(-INFINITY);
  int32_t largest_id = 0x7fffffff;  // lowest id with that value
  bool valid = true;
  ForShare(x, n, [&](int id, float v) {
    valid = valid && v < INFINITY;  // false for NaN
    const uint32_t bits = OrderedBits(v);
    if (bits > largest) {
      largest = bits;
      largest_id = id;
    }
  });
  m.maxima[tid] = largest;
  const Mass best = BlockBest(RankOfBits(largest, largest_id), m);
  if (!valid) m.invalid = 1;
  __syncthreads();
  const int32_t max_id = IdOfRank(best);
  const float max = ValueOfRank(best), temperature = own.params.temperature;
  if (m.invalid != 0 || max == -INFINITY || !(temperature > 0.0f)) {
    const bool is_finite = m.invalid == 0 && max > -INFINITY;
    if (tid == 0) p.tokens[r] = is_finite ? max_id : kNotFiniteToken;
    return;
  }
  const int top_k = own.params.top_k;
  const Row row{x,
                n,
                max,
                temperature,
                top_k > 0 && top_k < n ? top_k : 0,
                own.params.top_p,
                fminf(own.params.min_p, 1.0f)};
  const int32_t id = DrawFiltered(row, own.params.seed, own.index, max_id, z, m);
  if (tid == 0) p.tokens[r] = id;
}

}  // namespace

void Run(const Resources& resources, const SampleArgs& args) {
  const int64_t rows = args.logits.rows();
  KU_CHECK(args.vocab_limit <= resources.limits.vocab && rows <= resources.limits.max_seqs,
           "more than was reserved");
  SampleParams p{};
  p.logits = AsArg(args.logits);
  p.z = resources.sample_rows;
  p.vocab = args.vocab_limit;
  p.tokens = static_cast<int32_t*>(args.tokens.data);
  p.rows = static_cast<const SampleRow*>(args.rows.data);
  p.penalty_tokens = static_cast<const int32_t*>(args.penalty_tokens.data);
  p.penalty_counts = static_cast<const int32_t*>(args.penalty_counts.data);
  p.bias_tokens = static_cast<const int32_t*>(args.bias_tokens.data);
  p.bias_values = static_cast<const float*>(args.bias_values.data);
  // The result does not depend on the number of threads.
  const unsigned threads = args.vocab_limit <= 8192 ? 128 : kSampleThreads;
  Launch<SampleKernel>(dim3(static_cast<unsigned>(rows)), dim3(threads), 0, resources.stream, p);
}

}  // namespace kuiper::KU_GPU
