// Sample: one block per row, the same definition as the CPU's (cpu/sample.cpp): penalties, then
// z = (x - max) / temperature, top-k, top-p, min-p, and the argmax of z plus Gumbel noise that
// depends on (seed, step, id) only. Nothing is sorted: the border of top-k and of top-p is found by
// radix selection, four passes of 8 bits over an order-preserving integer form of z; probability
// mass is added up in 64-bit fixed point, so neither the number of threads nor the order of atomics
// can change the set. Ties go to the lowest ids, found by the same selection over ids. A row with
// NaN or +inf, or without any finite logit, gives -1.
//
// Greedy reads the logits once, a draw twice, top-k and top-p four more times each, from L2 (0.6 MB
// a row at a vocabulary of 152k). One block a row is bound by the L2 bandwidth of one SM: 10 us for
// greedy, some 60 us for top-k with top-p expected. Not measured.
#include "kuiper/kernels/common/philox.h"
#include "kuiper/kernels/cuda/kernels.h"
#include "kuiper/kernels/cuda/launch.h"
#include "kuiper/kernels/cuda/matrix_arg.h"

namespace kuiper::KU_GPU {
namespace {

constexpr int kMaxThreads = 1024;
constexpr int kBins = 256;
// Above -log(-log1p(-2^-33)), the largest noise OpenUniform can give.
constexpr float kMaxNoise = 23.0f;

using Mass = unsigned long long;  // NOLINT(google-runtime-int): the type of CUDA's 64-bit atomics

struct SampleParams {
  MatrixArg logits;  // [R, vocab] f32
  float* z;          // [R, vocab] scratch
  int vocab;         // ids that may be chosen
  int32_t* tokens;
  const float *temperature, *top_p, *min_p;
  const int32_t *top_k, *step;
  const uint64_t* seed;
  const float *repetition, *presence, *frequency;
  const int32_t *penalty_offsets, *penalty_tokens, *penalty_counts;
};

struct SampleMemory {
  Mass bins[kBins];
  Mass lane_sums[kWarpSize];
  Mass best;
  Mass total;
  int invalid;
  uint32_t bin;
  Mass above;
};

// Unsigned integers in the order of the floats; -0 counts as 0.
__device__ __forceinline__ uint32_t OrderedBits(float x) {
  const uint32_t bits = __float_as_uint(x + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float FromOrderedBits(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key);
}

// Larger for larger values, then for smaller ids.
__device__ __forceinline__ Mass Rank(float value, int32_t id) {
  return static_cast<Mass>(OrderedBits(value)) << 32 | static_cast<uint32_t>(~id);
}
__device__ __forceinline__ int32_t IdOfRank(Mass rank) {
  return static_cast<int32_t>(~static_cast<uint32_t>(rank));
}
__device__ __forceinline__ float ValueOfRank(Mass rank) {
  return FromOrderedBits(static_cast<uint32_t>(rank >> 32));
}

// The largest rank of the block; contains barriers.
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

// e^z in fixed point, 1 = 2^40: sums of 2^23 ids fit.
__device__ __forceinline__ Mass MassOf(float z) {
  return static_cast<Mass>(expf(z) * 0x1p40f);
}

// The ids that are still in the race: key above `key`, or equal to it and id at most `last_tie`.
struct Border {
  uint32_t key = 0;
  int32_t last_tie = 0x7fffffff;
  __device__ __forceinline__ bool Keeps(uint32_t k, int32_t id) const {
    return k > key || (k == key && id <= last_tie);
  }
};

struct Selected {
  uint32_t key;
  Mass above;  // mass of the items with larger keys
};

// m.bin = the highest bin that reaches the target together with those above it, m.above = the mass
// above it; the lowest bin with mass if rounding leaves the target out of reach. One warp.
__device__ __forceinline__ void FindBin(Mass target, Mass above, SampleMemory& m) {
  constexpr int kPerLane = kBins / kWarpSize;
  const int lane = static_cast<int>(threadIdx.x);
  Mass own = 0;
  for (int b = 0; b < kPerLane; ++b) own += m.bins[lane * kPerLane + b];
  m.lane_sums[lane] = own;
  __syncwarp();
  if (lane != 0) return;
  int group = 0;
  Mass sum = above, before_group = above;
  for (int l = kWarpSize - 1; l >= 0; --l) {
    if (m.lane_sums[l] == 0) continue;
    group = l;
    before_group = sum;
    sum += m.lane_sums[l];
    if (sum >= target) break;
  }
  sum = before_group;
  m.bin = static_cast<uint32_t>(group * kPerLane);
  m.above = before_group;
  for (int b = group * kPerLane + kPerLane - 1; b >= group * kPerLane; --b) {
    if (m.bins[b] == 0) continue;
    m.bin = static_cast<uint32_t>(b);
    m.above = sum;
    sum += m.bins[b];
    if (sum >= target) break;
  }
}

// Of items that `get(id, &key, &mass)` describes, the largest key such that the items with this or
// a larger key have at least the mass `target`. All threads call it and get the same result.
template <typename Get>
__device__ Selected Select(int n, Mass target, SampleMemory& m, const Get& get) {
  uint32_t prefix = 0, mask = 0;
  Mass above = 0;
  const int tid = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int shift = 24; shift >= 0; shift -= 8) {
    __syncthreads();
    for (int b = tid; b < kBins; b += threads) m.bins[b] = 0;
    __syncthreads();
    for (int id = tid; id < n; id += threads) {
      uint32_t key;
      Mass mass;
      if (get(id, &key, &mass) && (key & mask) == prefix) {
        atomicAdd(&m.bins[key >> shift & (kBins - 1)], mass);
      }
    }
    __syncthreads();
    if (tid < kWarpSize) FindBin(target, above, m);
    __syncthreads();
    prefix |= m.bin << shift;
    mask |= static_cast<uint32_t>(kBins - 1) << shift;
    above = m.above;
  }
  return {prefix, above};
}

// Keeps `count` of the ids at the border, the lowest.
__device__ Border CutTies(const float* z, int n, const Border& border, uint32_t key, Mass count,
                          SampleMemory& m) {
  const Selected last = Select(n, count, m, [&](int id, uint32_t* id_key, Mass* mass) {
    *id_key = ~static_cast<uint32_t>(id);
    *mass = 1;
    const uint32_t k = OrderedBits(z[id]);
    return k == key && border.Keeps(k, id);
  });
  return {key, static_cast<int32_t>(~last.key)};
}

__device__ Border TopK(const float* z, int n, int k, SampleMemory& m) {
  const Selected s = Select(n, static_cast<Mass>(k), m, [&](int id, uint32_t* key, Mass* mass) {
    *key = OrderedBits(z[id]);
    *mass = 1;
    return true;
  });
  return CutTies(z, n, Border{}, s.key, static_cast<Mass>(k) - s.above, m);
}

// The smallest set of ids within `border` that has the share `top_p` of its mass.
__device__ Border TopP(const float* z, int n, float top_p, const Border& border, SampleMemory& m) {
  __syncthreads();
  if (threadIdx.x == 0) m.total = 0;
  __syncthreads();
  Mass own = 0;
  for (int id = static_cast<int>(threadIdx.x); id < n; id += static_cast<int>(blockDim.x)) {
    if (border.Keeps(OrderedBits(z[id]), id)) own += MassOf(z[id]);
  }
  if (own > 0) atomicAdd(&m.total, own);
  __syncthreads();
  const double wanted = ceil(static_cast<double>(top_p) * static_cast<double>(m.total));
  const Mass target = wanted > 1.0 ? static_cast<Mass>(wanted) : 1;
  const Selected s = Select(n, target, m, [&](int id, uint32_t* key, Mass* mass) {
    *key = OrderedBits(z[id]);
    *mass = MassOf(z[id]);
    return border.Keeps(*key, id);
  });
  const Mass each = MassOf(FromOrderedBits(s.key));
  Mass ties = 1;
  if (each > 0 && target > s.above) ties = (target - s.above + each - 1) / each;
  return CutTies(z, n, border, s.key, ties, m);
}

// The id with the largest z plus noise among those `keeps(id, z)` admits.
template <typename Keeps>
__device__ int32_t Draw(const float* z, int n, uint64_t seed, int32_t step, int32_t max_id,
                        SampleMemory& m, const Keeps& keeps) {
  Mass best = Rank(-INFINITY, max_id);
  float threshold = -INFINITY;  // no noise lifts smaller values above this thread's best
  for (int block = static_cast<int>(threadIdx.x); block * 4 < n;
       block += static_cast<int>(blockDim.x)) {
    float v[4];
    bool any = false;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int id = block * 4 + j;
      v[j] = id < n ? z[id] : -INFINITY;
      if (!(v[j] > threshold) || !keeps(id, v[j])) v[j] = -INFINITY;
      any = any || v[j] > -INFINITY;
    }
    if (!any) continue;
    const Philox4x32 words = SampleBits(seed, step, block);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (!(v[j] > -INFINITY)) continue;
      const float noise = -logf(-log1pf(-OpenUniform(words.word[j])));
      const Mass rank = Rank(v[j] + noise, block * 4 + j);
      best = rank > best ? rank : best;
    }
    threshold = ValueOfRank(best) - kMaxNoise;
  }
  return IdOfRank(BlockBest(best, m));
}

// x with the row's penalties, in z; x itself when it has none.
__device__ const float* Penalise(const SampleParams& p, int row, const float* x, float* z) {
  const float repetition = p.repetition[row], presence = p.presence[row],
              frequency = p.frequency[row];
  const int first = p.penalty_offsets[row], end = p.penalty_offsets[row + 1];
  if (first == end || (repetition == 1.0f && presence == 0.0f && frequency == 0.0f)) return x;
  const int tid = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int id = tid; id < p.vocab; id += threads) z[id] = x[id];
  __syncthreads();
  for (int i = first + tid; i < end; i += threads) {
    const int32_t id = p.penalty_tokens[i];
    if (id < 0 || id >= p.vocab) continue;
    const int32_t count = p.penalty_counts[i];
    float v = z[id];
    v = v > 0.0f ? v / repetition : v * repetition;
    v -= frequency * static_cast<float>(count);
    if (count > 0) v -= presence;
    z[id] = v;
  }
  __syncthreads();
  return z;
}

__global__ void __launch_bounds__(kMaxThreads)
    SampleKernel(const __grid_constant__ SampleParams p) {
  KU_SHARED(m, SampleMemory);
  const int row = static_cast<int>(blockIdx.x), n = p.vocab;
  const int tid = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  float* z = p.z + static_cast<int64_t>(row) * n;
  const float* x = Penalise(p, row, reinterpret_cast<const float*>(p.logits.Row(row)), z);

  if (tid == 0) m.invalid = 0;
  Mass rank = Rank(-INFINITY, 0x7fffffff);
  bool valid = true;
  for (int id = tid; id < n; id += threads) {
    const float v = x[id];
    valid = valid && v < INFINITY;  // false for NaN
    const Mass r = Rank(v, id);
    rank = r > rank ? r : rank;
  }
  const Mass best = BlockBest(rank, m);
  if (!valid) m.invalid = 1;
  __syncthreads();
  const int32_t max_id = IdOfRank(best);
  const float max = ValueOfRank(best), temperature = p.temperature[row];
  if (m.invalid != 0 || max == -INFINITY || !(temperature > 0.0f)) {
    if (tid == 0) p.tokens[row] = m.invalid != 0 || max == -INFINITY ? -1 : max_id;
    return;
  }
  for (int id = tid; id < n; id += threads) z[id] = (x[id] - max) / temperature;
  __syncthreads();

  const int top_k = p.top_k[row];
  const float top_p = p.top_p[row], min_p = p.min_p[row];
  Border border;
  if (top_k > 0 && top_k < n) border = TopK(z, n, top_k, m);
  if (top_p < 1.0f) border = TopP(z, n, top_p, border, m);
  const float least = min_p > 0.0f ? fminf(min_p, 1.0f) : 0.0f;
  const int32_t id = Draw(z, n, p.seed[row], p.step[row], max_id, m, [&](int i, float v) {
    return border.Keeps(OrderedBits(v), i) && expf(v) >= least;
  });
  if (tid == 0) p.tokens[row] = id;
}

}  // namespace

void Sample(cudaStream_t stream, float* z, Tensor tokens, Tensor logits, const SampleArgs& args) {
  SampleParams p{};
  p.logits = AsArg(logits);
  p.z = z;
  p.vocab = args.vocab_limit;
  p.tokens = static_cast<int32_t*>(tokens.data);
  p.temperature = static_cast<const float*>(args.temperature.data);
  p.top_p = static_cast<const float*>(args.top_p.data);
  p.min_p = static_cast<const float*>(args.min_p.data);
  p.top_k = static_cast<const int32_t*>(args.top_k.data);
  p.step = static_cast<const int32_t*>(args.step.data);
  p.seed = static_cast<const uint64_t*>(args.seed.data);
  p.repetition = static_cast<const float*>(args.repetition_penalty.data);
  p.presence = static_cast<const float*>(args.presence_penalty.data);
  p.frequency = static_cast<const float*>(args.frequency_penalty.data);
  p.penalty_offsets = static_cast<const int32_t*>(args.penalty_offsets.data);
  p.penalty_tokens = static_cast<const int32_t*>(args.penalty_tokens.data);
  p.penalty_counts = static_cast<const int32_t*>(args.penalty_counts.data);
  // The result does not depend on the number of threads.
  const unsigned threads = args.vocab_limit <= 8192 ? 128 : kMaxThreads;
  Launch(SampleKernel, dim3(static_cast<unsigned>(logits.rows())), dim3(threads), 0, stream, p);
}

}  // namespace kuiper::KU_GPU
