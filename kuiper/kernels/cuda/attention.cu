// Attention over paged or contiguous KV, FP32 arithmetic on the CUDA cores, decode and prefill in
// one kernel (--attention flash1, and flash2 until tensor cores are worth their code).
//
// The keys of a sequence are cut into splits at fixed absolute positions (SplitBegin). Within a
// split the softmax is plain; the results (max, sum, output) of the splits are merged in ascending
// order. A row's bits therefore depend on its own length only, and who computes a split is free:
//   * a sequence with one query row gives each split to a block of its own; the last one to finish
//     merges (a ticket per sequence and kv head);
//   * other sequences, and batches large enough to fill the device, run their splits one after the
//     other in one block and merge as they go: the same numbers in the same order.
// Work items are found on the device from the sequence lengths, over a grid that is fixed on the
// host, so a captured launch fits every length.
//
// A block is 128 threads and up to 8 rows that share a kv head (query heads of the group times
// positions), so keys and values are read once for all of them. Per split: addresses of the rows
// (one table look-up per token); scores, one thread per key and row, from key tiles brought to
// shared memory by two-stage cp.async; softmax, one warp per row; values, 16 bytes per thread
// straight from DRAM, token t to thread group t mod groups, which are added up in ascending order.
//
// Decode moves each key and value once: bound by DRAM, 60 to 75 % expected at 4k tokens and more
// (GQA up to 4; FMA and shared memory bound above). Prefill reads the keys again for every 8 rows
// and runs at a tenth of the tensor cores' rate. Not measured.
#include "kuiper/base/check.h"
#include "kuiper/kernels/common/visit.h"
#include "kuiper/kernels/cuda/async_copy.cuh"
#include "kuiper/kernels/cuda/kernels.h"
#include "kuiper/kernels/cuda/launch.h"
#include "kuiper/kernels/cuda/matrix_arg.h"

namespace kuiper::KU_GPU {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / kWarpSize;
constexpr int kResident = 4;    // blocks whose shared memory fits an SM of Orin
constexpr int kMaxSplit = 512;  // tokens
// Both stages of a key tile; four rows of partial outputs of 128 threads with 8 values fit as well.
constexpr int kTileBytes = 17 << 10;
static_assert(kTileBytes >= 4 * kThreads * 8 * static_cast<int>(sizeof(float)));

// Splits of 128 tokens up to 2048, of 256 up to 8192, of 512 from there on.
KU_HOST_DEVICE int SplitBegin(int split) {
  if (split <= 16) return split * 128;
  if (split <= 40) return 2048 + (split - 16) * 256;
  return 8192 + (split - 40) * 512;
}
// The smallest n with SplitBegin(n) >= len.
KU_HOST_DEVICE int NumSplits(int len) {
  if (len <= 2048) return (len + 127) / 128;
  if (len <= 8192) return 16 + (len - 2048 + 255) / 256;
  return 40 + (len - 8192 + 511) / 512;
}

struct FlashParams {
  MatrixArg out, q;
  const int32_t* cu_q;     // [S + 1]
  const int32_t* kv_lens;  // [S]
  int num_seqs, kv_heads, group, head_dim;
  int block_heads;      // query heads of a block
  int block_positions;  // positions of a block
  int head_chunks;      // blocks that share the heads of a group
  int tile_keys;        // keys of one stage, a power of two
  float scale_log2e;
  bool split;        // one-row sequences are shared by blocks
  int max_splits;    // partial slots of a (sequence, kv head, chunk)
  float* partials;   // [slot][kRows][2 + head_dim]: max, sum, output
  int32_t* tickets;  // [S][kv_heads][head_chunks]
};

// max, sum and scaled output of the splits so far, joined with those of the next one.
struct MergeFactors {
  float max, old_scale, new_scale;
};
__device__ __forceinline__ MergeFactors Merge(float max, float next_max) {
  const float both = fmaxf(max, next_max);
  return {both, exp2f(max - both), exp2f(next_max - both)};
}

// What a block works on: the rows of `positions` query positions times `heads` query heads.
struct Item {
  int seq, kv_head, chunk, split;  // split -1: all of them
  int q_row;                       // of the first position
  int positions, heads;
  int first_len;  // tokens the first position sees
  __device__ __forceinline__ int rows() const { return positions * heads; }
  __device__ __forceinline__ int row_len(int r) const { return first_len + r / heads; }
  __device__ __forceinline__ int max_len() const { return first_len + positions - 1; }
};

// Numbers the work items sequence by sequence, the longest rows of a sequence first. Find takes
// ascending indices, is called by all threads of the block and contains barriers.
class ItemList {
 public:
  __device__ ItemList(const FlashParams& p, int* counts) : p_(p), counts_(counts) {}

  __device__ bool Find(int index, Item* item) {
    for (;;) {
      if (seq_ >= p_.num_seqs) return false;
      if (seq_ >= loaded_end_) LoadCounts();
      const int count = counts_[seq_ % kThreads];
      if (index < first_ + count) break;
      first_ += count;
      ++seq_;
    }
    const int in_seq = index - first_;
    const int q_len = p_.cu_q[seq_ + 1] - p_.cu_q[seq_];
    const int kv_len = p_.kv_lens[seq_];
    const int per_head = p_.kv_heads * p_.head_chunks;
    item->seq = seq_;
    item->chunk = in_seq % p_.head_chunks;
    item->kv_head = in_seq / p_.head_chunks % p_.kv_heads;
    item->heads = p_.group - item->chunk * p_.block_heads;
    if (item->heads > p_.block_heads) item->heads = p_.block_heads;
    const bool split = p_.split && q_len == 1;
    item->split = split ? in_seq / per_head : -1;
    const int blocks = (q_len + p_.block_positions - 1) / p_.block_positions;
    const int begin = split ? 0 : (blocks - 1 - in_seq / per_head) * p_.block_positions;
    item->q_row = p_.cu_q[seq_] + begin;
    item->positions = q_len - begin < p_.block_positions ? q_len - begin : p_.block_positions;
    item->first_len = kv_len - q_len + begin + 1;
    return true;
  }

 private:
  // Counts of the next kThreads sequences.
  __device__ void LoadCounts() {
    __syncthreads();
    const int seq = seq_ + static_cast<int>(threadIdx.x);
    if (seq < p_.num_seqs) {
      const int q_len = p_.cu_q[seq + 1] - p_.cu_q[seq];
      const int units = p_.split && q_len == 1
                            ? NumSplits(p_.kv_lens[seq])
                            : (q_len + p_.block_positions - 1) / p_.block_positions;
      counts_[threadIdx.x] = units * p_.kv_heads * p_.head_chunks;
    }
    loaded_end_ = seq_ + kThreads;
    __syncthreads();
  }

  const FlashParams& p_;
  int* counts_;  // [kThreads], shared
  int seq_ = 0, first_ = 0, loaded_end_ = 0;
};

// Shared memory of a block, in this order.
template <typename T, int kRows>
struct FlashMemory {
  char* tile;        // [2][tile_keys][pitch] keys; also partial outputs
  const T** keys;    // [kMaxSplit] rows of the split's tokens
  float* scores;     // [kRows][kMaxSplit]
  float* q;          // [kRows][head_dim], scaled
  float* out;        // [kRows][head_dim], merged so far
  float* split_max;  // [kRows] of the split
  float* split_sum;  // [kRows]
  float* max;        // [kRows] merged so far
  float* sum;        // [kRows]
  int* own;          // [kRows] tokens of the split that the row sees

  __device__ FlashMemory(char* base, int head_dim) {
    tile = base;
    keys = reinterpret_cast<const T**>(base + kTileBytes);
    scores = reinterpret_cast<float*>(keys + kMaxSplit);
    q = scores + kRows * kMaxSplit;
    out = q + kRows * head_dim;
    split_max = out + kRows * head_dim;
    split_sum = split_max + kRows;
    max = split_sum + kRows;
    sum = max + kRows;
    own = reinterpret_cast<int*>(sum + kRows);
  }
  static size_t Bytes(int head_dim) {
    return kTileBytes + kMaxSplit * sizeof(T*) +
           sizeof(float) * kRows * (kMaxSplit + 2 * static_cast<size_t>(head_dim) + 5);
  }
};

// Bytes between the keys of a tile: 16 more than a key, so that the keys of neighbouring threads
// lie in different banks.
template <typename T>
KU_HOST_DEVICE int KeyPitch(int head_dim) {
  return head_dim * static_cast<int>(sizeof(T)) + 16;
}

// Brings keys [begin, begin + p.tile_keys) of the split to a stage of the tile.
template <typename T, int kVec>
__device__ __forceinline__ void LoadKeys(const FlashParams& p, char* stage, const T* const* keys,
                                         int begin, int count) {
  const int chunks = p.head_dim / kVec;
  const int pitch = KeyPitch<T>(p.head_dim);
  for (int i = static_cast<int>(threadIdx.x); i < p.tile_keys * chunks; i += kThreads) {
    const int key = i / chunks, chunk = i % chunks;
    if (begin + key >= count) break;
    char* to = stage + key * pitch + chunk * kVec * static_cast<int>(sizeof(T));
    const T* from = keys[begin + key] + chunk * kVec;
    if constexpr (kVec == kVector<T>) {
      CopyAsync<16>(to, from);
    } else {
#pragma unroll
      for (int j = 0; j < kVec; ++j) reinterpret_cast<T*>(to)[j] = from[j];
    }
  }
}

// scores[r][j] = q_r . k_j for the first `count` tokens of the split; two chains of sums, of even
// and of odd elements.
template <typename T, int kVec, int kRows>
__device__ __forceinline__ void ComputeScores(const FlashParams& p, const FlashMemory<T, kRows>& m,
                                              int rows, int count) {
  const int pitch = KeyPitch<T>(p.head_dim);
  const int stage_bytes = p.tile_keys * pitch;
  const int tiles = (count + p.tile_keys - 1) / p.tile_keys;
  LoadKeys<T, kVec>(p, m.tile, m.keys, 0, count);
  CommitCopies();
  for (int t = 0; t < tiles; ++t) {
    if (t + 1 < tiles) {
      LoadKeys<T, kVec>(p, m.tile + (t + 1) % 2 * stage_bytes, m.keys, (t + 1) * p.tile_keys,
                        count);
    }
    CommitCopies();
    WaitCopies<1>();
    __syncthreads();
    const char* stage = m.tile + t % 2 * stage_bytes;
    for (int i = static_cast<int>(threadIdx.x); i < p.tile_keys * rows; i += kThreads) {
      const int key = i & (p.tile_keys - 1), r = i / p.tile_keys;
      const int j = t * p.tile_keys + key;
      if (j >= count) continue;
      const T* k = reinterpret_cast<const T*>(stage + key * pitch);
      const float* q = m.q + r * p.head_dim;
      float even = 0.0f, odd = 0.0f;
      for (int c = 0; c < p.head_dim; c += kVec) {
        float v[kVec];
        LoadValues(k + c, v);
#pragma unroll
        for (int e = 0; e < kVec; e += 2) {
          even = fmaf(q[c + e], v[e], even);
          odd = fmaf(q[c + e + 1], v[e + 1], odd);
        }
      }
      m.scores[r * kMaxSplit + j] = even + odd;
    }
    __syncthreads();
  }
}

// Scores to weights exp2(score - max), one warp per row. Tokens the row does not see weigh 0.
template <typename T, int kRows>
__device__ __forceinline__ void Softmax(const FlashMemory<T, kRows>& m, const Item& item,
                                        int split_begin, int count) {
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  for (int r = static_cast<int>(threadIdx.x) / kWarpSize; r < item.rows(); r += kWarps) {
    float* scores = m.scores + r * kMaxSplit;
    int own = item.row_len(r) - split_begin;
    own = own < 0 ? 0 : own > count ? count : own;
    float max = -INFINITY;
    for (int j = lane; j < own; j += kWarpSize) max = fmaxf(max, scores[j]);
    max = WarpMax(max);
    float sum = 0.0f;
    for (int j = lane; j < count; j += kWarpSize) {
      const float weight = j < own ? exp2f(scores[j] - max) : 0.0f;
      scores[j] = weight;
      sum += weight;
    }
    sum = WarpSum(sum);
    if (lane == 0) {
      m.split_max[r] = max;
      m.split_sum[r] = sum;
      m.own[r] = own;
    }
  }
}

// Calls consume(r, i, output) for element i of each row r: the weighted sum of the split's values.
template <typename T, int kVec, int kRows, bool kOnePosition, typename F>
__device__ __forceinline__ void WeightValues(const FlashParams& p, const FlashMemory<T, kRows>& m,
                                             int64_t v_offset, int rows, int count,
                                             const F& consume) {
  const int lanes = p.head_dim / kVec;  // threads that share a token
  const int groups = kThreads / lanes;
  const int tid = static_cast<int>(threadIdx.x);
  const int group = tid / lanes, at = tid % lanes * kVec;
  float acc[kRows][kVec] = {};
  if (group < groups) {
    int own[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) own[r] = r < rows ? m.own[r] : 0;
#pragma unroll 2
    for (int j = group; j < count; j += groups) {
      float v[kVec];
      LoadValues(m.keys[j] + v_offset + at, v);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        // A row skips what it does not see: 0 * NaN would not be 0.
        if (kOnePosition ? r < rows : j < own[r]) {
          const float weight = m.scores[r * kMaxSplit + j];
#pragma unroll
          for (int e = 0; e < kVec; ++e) acc[r][e] = fmaf(weight, v[e], acc[r][e]);
        }
      }
    }
  }
  // groups * head_dim <= 128 * kVec floats per row: four rows fit the tile at a time.
  constexpr int kStep = kRows < 4 ? kRows : 4;
  float* reduce = reinterpret_cast<float*>(m.tile);
#pragma unroll
  for (int first = 0; first < kRows; first += kStep) {
    if (first >= rows) break;
    __syncthreads();
    if (group < groups) {
#pragma unroll
      for (int s = 0; s < kStep; ++s) {
#pragma unroll
        for (int e = 0; e < kVec; ++e) {
          reduce[(s * groups + group) * p.head_dim + at + e] = acc[first + s][e];
        }
      }
    }
    __syncthreads();
    const int left = rows - first < kStep ? rows - first : kStep;
    for (int n = tid; n < left * p.head_dim; n += kThreads) {
      const int s = n / p.head_dim, i = n % p.head_dim;
      float sum = reduce[s * groups * p.head_dim + i];
      for (int g = 1; g < groups; ++g) sum += reduce[(s * groups + g) * p.head_dim + i];
      consume(first + s, i, sum);
    }
  }
}

__device__ __forceinline__ void StoreOutput(const FlashParams& p, const Item& item, int r, int i,
                                            float x) {
  const int64_t head =
      static_cast<int64_t>(item.kv_head) * p.group + item.chunk * p.block_heads + r % item.heads;
  StoreAny(p.out.Row(item.q_row + r / item.heads), p.out.dtype, head * p.head_dim + i, x);
}

// The last block of a sequence and kv head merges the splits that all of them left in p.partials.
template <int kRows>
__device__ __forceinline__ void MergePartials(const FlashParams& p, const Item& item,
                                              const float* partials, int num_splits) {
  const int stride = kRows * (2 + p.head_dim);
  for (int n = static_cast<int>(threadIdx.x); n < item.rows() * p.head_dim; n += kThreads) {
    const int r = n / p.head_dim, i = n % p.head_dim;
    const float* row = partials + r * (2 + p.head_dim);
    float max = -INFINITY, sum = 0.0f, out = 0.0f;
    for (int s = 0; s < num_splits; ++s, row += stride) {
      const MergeFactors f = Merge(max, __ldcg(row));
      max = f.max;
      sum = fmaf(__ldcg(row + 1), f.new_scale, sum * f.old_scale);
      out = fmaf(__ldcg(row + 2 + i), f.new_scale, out * f.old_scale);
    }
    StoreOutput(p, item, r, i, out / sum);
  }
}

template <typename View, int kVec, int kRows, bool kOnePosition>
__global__ void __launch_bounds__(kThreads, kResident)
    FlashKernel(const __grid_constant__ FlashParams p, const __grid_constant__ View view) {
  using T = typename View::Element;
  KU_DYNAMIC_SHARED(char, base);
  KU_SHARED(counts, int[kThreads]);
  KU_SHARED(is_last, int);
  const FlashMemory<T, kRows> m(base, p.head_dim);
  const int tid = static_cast<int>(threadIdx.x);
  ItemList items(p, counts);
  Item item;
  for (int index = static_cast<int>(blockIdx.x); items.Find(index, &item);
       index += static_cast<int>(gridDim.x)) {
    const int rows = item.rows();
    const int head = item.kv_head * p.group + item.chunk * p.block_heads;
    __syncthreads();
    for (int n = tid; n < rows * p.head_dim; n += kThreads) {
      const int r = n / p.head_dim, i = n % p.head_dim;
      const int64_t at = static_cast<int64_t>(head + r % item.heads) * p.head_dim + i;
      m.q[n] = LoadAny(p.q.Row(item.q_row + r / item.heads), p.q.dtype, at) * p.scale_log2e;
      m.out[n] = 0.0f;
    }
    if (tid < rows) {
      m.max[tid] = -INFINITY;
      m.sum[tid] = 0.0f;
    }
    const int len = item.max_len();
    const int slot = (item.seq * p.kv_heads + item.kv_head) * p.head_chunks + item.chunk;
    const int64_t partial_floats = static_cast<int64_t>(kRows) * (2 + p.head_dim);
    float* partials = p.partials + slot * p.max_splits * partial_floats;
    const int first_split = item.split < 0 ? 0 : item.split;
    const int end_split = item.split < 0 ? NumSplits(len) : item.split + 1;
    for (int split = first_split; split < end_split; ++split) {
      const int begin = SplitBegin(split);
      const int count = (SplitBegin(split + 1) < len ? SplitBegin(split + 1) : len) - begin;
      for (int j = tid; j < count; j += kThreads) {
        m.keys[j] = view.Row(item.seq, begin + j, item.kv_head);
      }
      __syncthreads();
      ComputeScores<T, kVec, kRows>(p, m, rows, count);
      Softmax(m, item, begin, count);
      __syncthreads();
      if (item.split >= 0) {
        float* partial = partials + split * partial_floats;
        WeightValues<T, kVec, kRows, kOnePosition>(
            p, m, view.s.v_offset, rows, count,
            [&](int r, int i, float x) { partial[r * (2 + p.head_dim) + 2 + i] = x; });
        if (tid < rows) {
          partial[tid * (2 + p.head_dim)] = m.split_max[tid];
          partial[tid * (2 + p.head_dim) + 1] = m.split_sum[tid];
        }
        continue;
      }
      WeightValues<T, kVec, kRows, kOnePosition>(
          p, m, view.s.v_offset, rows, count, [&](int r, int i, float x) {
            if (m.own[r] == 0) return;
            const MergeFactors f = Merge(m.max[r], m.split_max[r]);
            float& out = m.out[r * p.head_dim + i];
            out = fmaf(x, f.new_scale, out * f.old_scale);
          });
      __syncthreads();
      if (tid < rows && m.own[tid] > 0) {
        const MergeFactors f = Merge(m.max[tid], m.split_max[tid]);
        m.sum[tid] = fmaf(m.split_sum[tid], f.new_scale, m.sum[tid] * f.old_scale);
        m.max[tid] = f.max;
      }
      __syncthreads();
    }
    if (item.split < 0) {
      for (int n = tid; n < rows * p.head_dim; n += kThreads) {
        const int r = n / p.head_dim;
        StoreOutput(p, item, r, n % p.head_dim, m.out[n] / m.sum[r]);
      }
      continue;
    }
    const int num_splits = NumSplits(len);
    __threadfence();
    __syncthreads();
    if (tid == 0) is_last = atomicAdd(&p.tickets[slot], 1) == num_splits - 1;
    __syncthreads();
    if (is_last == 0) continue;
    __threadfence();
    MergePartials<kRows>(p, item, partials, num_splits);
    if (tid == 0) p.tickets[slot] = 0;
  }
}

// Rows a block may have: its scores, queries and outputs must fit 48 KB of shared memory.
int MaxRows(int head_dim) {
  return head_dim <= 128 ? 8 : head_dim <= 256 ? 4 : 2;
}

struct FlashLaunch {
  cudaStream_t stream;
  int grid;
  FlashParams params;
};

template <int kVec, int kRows, bool kOnePosition, typename View>
void LaunchFlash(const FlashLaunch& launch, const View& view) {
  using T = typename View::Element;
  FlashParams p = launch.params;
  p.tile_keys = 32;
  while (2 * p.tile_keys * KeyPitch<T>(p.head_dim) > kTileBytes) p.tile_keys /= 2;
  KU_CHECK(p.tile_keys >= 1);
  Launch(FlashKernel<View, kVec, kRows, kOnePosition>, dim3(static_cast<unsigned>(launch.grid)),
         dim3(kThreads), FlashMemory<T, kRows>::Bytes(p.head_dim), launch.stream, p, view);
}

template <int kVec, typename View>
void LaunchFlash(const FlashLaunch& launch, int rows, bool one_position, const View& view) {
  if (!one_position) {
    if (rows == 8) return LaunchFlash<kVec, 8, false>(launch, view);
    if (rows == 4) return LaunchFlash<kVec, 4, false>(launch, view);
    return LaunchFlash<kVec, 2, false>(launch, view);
  }
  if (rows == 8) return LaunchFlash<kVec, 8, true>(launch, view);
  if (rows == 4) return LaunchFlash<kVec, 4, true>(launch, view);
  return LaunchFlash<kVec, 2, true>(launch, view);
}

}  // namespace

int NumAttentionSplits(int len) {
  return NumSplits(len);
}

void AttentionFlash(cudaStream_t stream, const AttentionScratch& scratch, int num_sms, Tensor out,
                    Tensor q, const KvView& kv, const AttnMeta& meta, float scale) {
  const int head_dim = kv.s.head_dim;
  KU_CHECK(head_dim <= kMaxHeadDim && head_dim % 2 == 0 && (head_dim % 8 == 0 || head_dim <= 256),
           "head_dim " + std::to_string(head_dim) + " is not supported");
  FlashLaunch launch{stream, 0, {}};
  FlashParams& p = launch.params;
  p.out = AsArg(out);
  p.q = AsArg(q);
  p.cu_q = static_cast<const int32_t*>(meta.cu_seqlens_q.data);
  p.kv_lens = static_cast<const int32_t*>(meta.kv_lens.data);
  p.num_seqs = meta.num_seqs;
  p.kv_heads = kv.kv_heads;
  p.head_dim = head_dim;
  p.group = static_cast<int>(q.shape[1]) / head_dim / kv.kv_heads;
  p.scale_log2e = scale * 1.44269504f;
  const bool one_position = meta.max_q_len == 1;
  int rows = MaxRows(head_dim);
  while (one_position && rows > 2 && rows / 2 >= p.group) rows /= 2;
  p.block_heads = p.group < rows ? p.group : rows;
  p.block_positions = one_position ? 1 : rows / p.block_heads;
  p.head_chunks = CeilDiv(p.group, p.block_heads);

  // Splitting pays while there are fewer than two waves.
  const int resident = kResident * num_sms;
  const int64_t heads = int64_t{1} * meta.num_seqs * p.kv_heads * p.head_chunks;
  p.max_splits = NumSplits(meta.max_kv_len);
  const int64_t floats = heads * p.max_splits * rows * (2 + head_dim);
  p.split = heads < 2 * resident && p.max_splits > 1 && floats <= scratch.num_partials &&
            heads <= scratch.num_tickets;
  p.partials = scratch.partials;
  p.tickets = scratch.tickets;
  // At most: every row in a block of its own position, or every sequence split.
  const int64_t items =
      (q.rows() + meta.num_seqs * (p.split ? p.max_splits : 0)) * p.kv_heads * p.head_chunks;
  launch.grid = static_cast<int>(items < resident ? items : resident);
  VisitKv(kv, [&](const auto& view) {
    using T = typename std::remove_cv_t<std::remove_reference_t<decltype(view)>>::Element;
    if (head_dim % 8 == 0) {
      LaunchFlash<kVector<T>>(launch, rows, one_position, view);
    } else {
      LaunchFlash<2>(launch, rows, one_position, view);
    }
  });
}

}  // namespace kuiper::KU_GPU
