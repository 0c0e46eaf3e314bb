// Finds the ids of a row that Sample may draw: top-k, top-p and min-p without sorting. The border
// of top-k and of top-p is found by radix selection: four passes of 8 bits over an order-preserving
// integer form of z. Probability mass is summed in 64-bit fixed point, so neither the number of
// threads nor the order of atomics can change the set. Ties go to the lowest ids, found by the same
// selection over ids.
//
// The filters first give a z below which no id can be drawn (LeastZ). The few ids above it are
// gathered in shared memory, and the selection reads only them. If they are too many, it reads the
// whole row instead; the result is the same.
#pragma once

#include "kuiper/kernels/cuda/numeric.cuh"

namespace kuiper::KU_GPU {

constexpr int kSampleThreads = 1024;
constexpr int kBins = 256;
constexpr int kMaxCandidates = 4096;

using Mass = unsigned long long;  // NOLINT(google-runtime-int): the type of CUDA's 64-bit atomics

struct SampleMemory {
  Mass bins[kBins];
  Mass lane_sums[kWarpSize];
  Mass best;
  Mass total;
  int invalid;
  uint32_t bin;
  Mass above;
  int num_candidates;
  float z[kMaxCandidates];
  union {
    int32_t ids[kMaxCandidates];
    uint32_t maxima[kSampleThreads];  // largest value of each thread's share of the row
  };
};

// Returns how many of the first ids of a row can be read as vectors of four.
__device__ __forceinline__ int IdsInVectors(const float* x, int n) {
  return reinterpret_cast<uintptr_t>(x) % sizeof(float4) == 0 ? n / 4 * 4 : 0;
}

// Calls f(id, x[id]) for this thread's share of the ids below n, in ascending order.
template <typename F>
__device__ __forceinline__ void ForShare(const float* x, int n, const F& f) {
  const int tid = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int in_vectors = IdsInVectors(x, n);
#pragma unroll 4  // the loads of four iterations come before their calls
  for (int id = 4 * tid; id < in_vectors; id += 4 * threads) {
    const float4 v = *reinterpret_cast<const float4*>(x + id);
    f(id, v.x);
    f(id + 1, v.y);
    f(id + 2, v.z);
    f(id + 3, v.w);
  }
  for (int id = in_vectors + tid; id < n; id += threads) f(id, x[id]);
}

// The candidates of a row: z of all ids, or of those listed in any order.
struct Items {
  const float* z;
  const int32_t* ids;  // null: item i is id i
  int count;
  __device__ __forceinline__ int32_t id(int i) const { return ids == nullptr ? i : ids[i]; }
};

// Unsigned integers in the order of the floats; -0 counts as 0.
__device__ __forceinline__ uint32_t OrderedBits(float x) {
  const uint32_t bits = __float_as_uint(x + 0.0f);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
__device__ __forceinline__ float FromOrderedBits(uint32_t key) {
  return __uint_as_float((key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key);
}

// e^z in fixed point, 1 = 2^40: sums of 2^23 ids fit.
__device__ __forceinline__ Mass MassOf(float z) {
  return static_cast<Mass>(expf(z) * 0x1p40f);
}

// The ids that are still eligible: key above `key`, or equal to it and id at most `last_tie`.
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

// Sets m.bin to the highest bin that, together with all higher bins, reaches the target, and
// m.above to the mass above that bin. If rounding makes the target unreachable, m.bin is the lowest
// bin with mass. Called by one warp.
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

__device__ __forceinline__ Mass WarpSumOfMass(Mass mass) {
#pragma unroll
  for (int offset = kWarpSize / 2; offset > 0; offset /= 2) {
    mass += __shfl_xor_sync(kFullWarp, mass, offset);
  }
  return mass;
}

// bins[bin] += mass for the lanes with bin >= 0. 64-bit atomics in shared memory are loops, and
// most lanes use the same few bins, so the masses of these bins are summed first. Called by whole
// warps.
__device__ __forceinline__ void AddToBins(Mass* bins, int bin, Mass mass) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  for (int round = 0; round < 2; ++round) {
    const unsigned left = __ballot_sync(kFullWarp, bin >= 0 ? 1 : 0);
    if (left == 0) return;
    const int leader = __ffs(static_cast<int>(left)) - 1;
    const bool same = bin == __shfl_sync(kFullWarp, bin, leader);
    const Mass sum = WarpSumOfMass(same ? mass : 0);
    if (lane == leader) atomicAdd(&bins[bin], sum);
    if (same) bin = -1;
  }
  if (bin >= 0) atomicAdd(&bins[bin], mass);
}

// Returns the largest key such that the items with this or a larger key have at least the mass
// `target`. `get(i, &key, &mass)` describes item i. All threads call it and get the same result.
template <typename Get>
__device__ Selected Select(int n, Mass target, SampleMemory& m, const Get& get) {
  uint32_t prefix = 0, mask = 0;
  Mass above = 0;
  const int tid = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  for (int shift = 24; shift >= 0; shift -= 8) {
    __syncthreads();
    for (int b = tid; b < kBins; b += threads) m.bins[b] = 0;
    __syncthreads();
    for (int first = 0; first < n; first += threads) {
      uint32_t key = 0;
      Mass mass = 0;
      const bool counts =
          first + tid < n && get(first + tid, &key, &mass) && (key & mask) == prefix;
      AddToBins(m.bins, counts ? static_cast<int>(key >> shift & (kBins - 1)) : -1, mass);
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

// Keeps the `count` lowest of the ids at the border.
inline __device__ Border CutTies(const Items& items, const Border& border, uint32_t key, Mass count,
                                 SampleMemory& m) {
  const Selected last = Select(items.count, count, m, [&](int i, uint32_t* id_key, Mass* mass) {
    *id_key = ~static_cast<uint32_t>(items.id(i));
    *mass = 1;
    const uint32_t k = OrderedBits(items.z[i]);
    return k == key && border.Keeps(k, items.id(i));
  });
  return {key, static_cast<int32_t>(~last.key)};
}

inline __device__ Border TopK(const Items& items, int k, SampleMemory& m) {
  const Mass count = static_cast<Mass>(k);
  const Selected s = Select(items.count, count, m, [&](int i, uint32_t* key, Mass* mass) {
    *key = OrderedBits(items.z[i]);
    *mass = 1;
    return true;
  });
  return CutTies(items, Border{}, s.key, count - s.above, m);
}

// Returns the sum of `own` over all threads of the block.
inline __device__ Mass SumOfMass(Mass own, SampleMemory& m) {
  __syncthreads();
  if (threadIdx.x == 0) m.total = 0;
  __syncthreads();
  own = WarpSumOfMass(own);
  if (threadIdx.x % kWarpSize == 0) atomicAdd(&m.total, own);
  __syncthreads();
  return m.total;
}

// Returns the mass that the share top_p of `total` needs, at least 1.
__device__ __forceinline__ Mass TopPTarget(float top_p, Mass total) {
  const double wanted = ceil(static_cast<double>(top_p) * static_cast<double>(total));
  return wanted > 1.0 ? static_cast<Mass>(wanted) : 1;
}

// The smallest set of items within `border` that has the mass `target`.
inline __device__ Border TopP(const Items& items, Mass target, const Border& border,
                              SampleMemory& m) {
  const Selected s = Select(items.count, target, m, [&](int i, uint32_t* key, Mass* mass) {
    *key = OrderedBits(items.z[i]);
    *mass = MassOf(items.z[i]);
    return border.Keeps(*key, items.id(i));
  });
  const Mass each = MassOf(FromOrderedBits(s.key));
  Mass ties = 1;
  if (each > 0 && target > s.above) ties = (target - s.above + each - 1) / each;
  return CutTies(items, border, s.key, ties, m);
}

// A row before the filters: z = (x - max) / temperature of n ids.
struct Row {
  const float* x;
  int n;
  float max, temperature;
  int top_k;  // 0: off
  float top_p, min_p;
  __device__ __forceinline__ float Z(float value) const { return (value - max) / temperature; }
};

// Returns a z such that no id below it can be drawn and top-p gives the same result without those
// ids. m.maxima holds the largest value of each thread's share; `target` is the mass that top-p
// needs if it is the first filter.
//   top-k: the k-th largest of the maxima; k threads have a value of at least this.
//   top-p: ids below (total - target) / n each have less mass together than may be missing.
//   min-p: its own bound. Not if top-p follows top-k: top-p sums all that top-k leaves.
// The margins cover the rounding of expf and logf.
inline __device__ float LeastZ(const Row& row, Mass total, Mass target, SampleMemory& m) {
  float least = -INFINITY;
  const bool sums_top_k = row.top_k > 0 && row.top_p < 1.0f;
  if (row.min_p > 0.0f && !sums_top_k) least = logf(row.min_p) - 0.01f;
  const int threads = static_cast<int>(blockDim.x);
  if (row.top_k > 0 && row.top_k <= threads) {
    const Selected kth =
        Select(threads, static_cast<Mass>(row.top_k), m, [&](int i, uint32_t* key, Mass* mass) {
          *key = m.maxima[i];
          *mass = 1;
          return true;
        });
    least = fmaxf(least, row.Z(FromOrderedBits(kth.key)));
  } else if (row.top_k == 0 && row.top_p < 1.0f && total > target) {
    const float spare = static_cast<float>(total - target) / static_cast<float>(row.n);
    least = fmaxf(least, logf(spare * 0x1p-40f) - 0.01f);
  }
  return least;
}

// Appends the id to the candidates if z >= least. Called by whole warps.
__device__ __forceinline__ void ListIfAtLeast(int id, float z, float least, SampleMemory& m) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const bool counts = z >= least;
  const unsigned kept = __ballot_sync(kFullWarp, counts ? 1 : 0);
  if (kept == 0) return;
  int at = 0;
  if (lane == 0) at = atomicAdd(&m.num_candidates, __popc(kept));
  at = __shfl_sync(kFullWarp, at, 0) + __popc(kept & ((1u << lane) - 1));
  if (counts && at < kMaxCandidates) {
    m.z[at] = z;
    m.ids[at] = id;
  }
}

// Lists the ids whose z is at least `least`, a finite number. Returns how many there are; only the
// first kMaxCandidates are listed. Warps stay together for their ballots.
inline __device__ int Gather(const Row& row, float least, SampleMemory& m) {
  __syncthreads();
  if (threadIdx.x == 0) m.num_candidates = 0;
  __syncthreads();
  const int tid = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int in_vectors = IdsInVectors(row.x, row.n);
#pragma unroll 4
  for (int first = 0; first < in_vectors; first += 4 * threads) {
    const int id = first + 4 * tid;
    float4 v = make_float4(-INFINITY, -INFINITY, -INFINITY, -INFINITY);
    if (id < in_vectors) v = *reinterpret_cast<const float4*>(row.x + id);
    const float z[4] = {row.Z(v.x), row.Z(v.y), row.Z(v.z), row.Z(v.w)};
    const bool any = z[0] >= least || z[1] >= least || z[2] >= least || z[3] >= least;
    if (__ballot_sync(kFullWarp, any ? 1 : 0) == 0) continue;
#pragma unroll
    for (int j = 0; j < 4; ++j) ListIfAtLeast(id + j, z[j], least, m);
  }
  for (int first = in_vectors; first < row.n; first += threads) {
    const int id = first + tid;
    ListIfAtLeast(id, id < row.n ? row.Z(row.x[id]) : -INFINITY, least, m);
  }
  __syncthreads();
  return m.num_candidates;
}

}  // namespace kuiper::KU_GPU
