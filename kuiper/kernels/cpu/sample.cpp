// Sample, parallel over rows of logits. The steps for one row:
//   bias        Adds the request's bias to logits of single ids; -inf excludes an id.
//   penalties   As in vLLM. Repetition applies to ids of the prompt or the output: it divides
//               positive logits and multiplies negative ones. Then frequency * count and presence
//               are subtracted for generated ids.
//   scaling     z = (x - max) / temperature, which cannot overflow.
//   filters     As in Hugging Face: top-k, then top-p over the remaining ids (renormalised), then
//               min-p relative to the largest probability.
//   draw        Gumbel-max trick: argmax of z - log(-log(u)), with u from (seed, step, id).
// Ids are ordered by (logit descending, id ascending), so ties at the border of top-k and top-p
// keep the lowest ids. The result is -1 if no logit is finite or one is NaN or +inf.
//
// Greedy sampling reads the logits once, at memory speed. A draw adds one exp pass for top-p, and
// random numbers for the ids that can still win.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kuiper/kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kuiper/kernels/cpu/sample.cpp"
#include "hwy/foreach_target.h"
// After foreach_target.h.
#include "hwy/highway.h"
// After highway.h.
#include "hwy/contrib/math/math-inl.h"
#include "kuiper/kernels/common/philox.h"
#include "kuiper/kernels/cpu/cpu_kernels.h"
#include "kuiper/kernels/cpu/simd-inl.h"

#ifndef KUIPER_KERNELS_CPU_SAMPLE_CPP_
#define KUIPER_KERNELS_CPU_SAMPLE_CPP_
namespace kuiper::cpu {

struct Candidate {
  float z;
  int32_t id;
};

inline bool Before(const Candidate& a, const Candidate& b) {
  return a.z > b.z || (a.z == b.z && a.id < b.id);
}

// The arguments of one row.
struct SampleRowArgs {
  const float* logits;            // [vocab]
  int vocab;                      // ids below this may be chosen
  SampleRow row;                  // num_penalties is 0 if the penalties are off
  const int32_t* penalty_tokens;  // [num_penalties], of this row
  const int32_t* penalty_counts;
  const int32_t* bias_tokens;  // [num_biases], of this row
  const float* bias_values;
};

struct SampleScratch {
  float* z;               // [vocab]
  Candidate* candidates;  // [vocab]
};

}  // namespace kuiper::cpu
#endif  // KUIPER_KERNELS_CPU_SAMPLE_CPP_

HWY_BEFORE_NAMESPACE();
namespace kuiper {
namespace cpu {
namespace HWY_NAMESPACE {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Above -log(-log1p(-2^-33)), the largest noise OpenUniform can give.
constexpr float kMaxNoise = 23.0f;

void AddBiases(const SampleRowArgs& args, float* x) {
  for (int i = 0; i < args.row.num_biases; ++i) {
    const int32_t id = args.bias_tokens[i];
    if (id >= 0 && id < args.vocab) x[id] += args.bias_values[i];
  }
}

void Penalise(const SampleRowArgs& args, float* x) {
  for (int i = 0; i < args.row.num_penalties; ++i) {
    const int32_t id = args.penalty_tokens[i];
    if (id < 0 || id >= args.vocab) continue;
    const int32_t count = args.penalty_counts[i];
    x[id] = x[id] > 0 ? x[id] / args.row.params.repetition_penalty
                      : x[id] * args.row.params.repetition_penalty;
    x[id] -= args.row.params.frequency_penalty * static_cast<float>(count);
    if (count > 0) x[id] -= args.row.params.presence_penalty;
  }
}

// Returns the largest value and the lowest id that has it. The id is kNotFiniteToken if all values
// are -inf or a value is NaN or +inf.
Candidate FindMax(const float* x, int n) {
  constexpr int kBlock = 1024;
  const DF d;
  const VF infinity = hn::Set(d, kInfinity);
  Candidate best{-kInfinity, kNotFiniteToken};
  for (int begin = 0; begin < n; begin += kBlock) {
    const int end = std::min(n, begin + kBlock);
    VF max[4];
    for (VF& m : max) m = hn::Neg(infinity);
    auto valid = hn::Eq(infinity, infinity);
    int i = begin;
    for (; i + 4 * kLanes <= end; i += 4 * kLanes) {
      for (int j = 0; j < 4; ++j) {
        const VF v = hn::LoadU(d, x + i + j * kLanes);
        valid = hn::And(valid, hn::Lt(v, infinity));
        max[j] = hn::Max(max[j], v);
      }
    }
    bool all_valid = hn::AllTrue(d, valid);
    float block_max =
        hn::GetLane(hn::MaxOfLanes(d, hn::Max(hn::Max(max[0], max[1]), hn::Max(max[2], max[3]))));
    for (; i < end; ++i) {
      all_valid = all_valid && x[i] < kInfinity;
      block_max = std::max(block_max, x[i]);
    }
    if (!all_valid) return {kInfinity, kNotFiniteToken};
    if (block_max > best.z) best = {block_max, begin};
  }
  if (best.id != kNotFiniteToken) {
    while (x[best.id] != best.z) ++best.id;
  }
  return best;
}

// True if one of the 16 values at z is above `threshold`.
HWY_INLINE bool AnyAbove(const float* z, float threshold) {
  const DF d;
  VF max = hn::LoadU(d, z);
  for (int r = 1; r < kRegs; ++r) max = hn::Max(max, hn::LoadU(d, z + r * kLanes));
  return !hn::AllTrue(d, hn::Le(max, hn::Set(d, threshold)));
}

// Calls f(id) in ascending order for every id with z[id] > threshold; f may raise the threshold.
template <class F>
HWY_INLINE void ForEachAbove(const float* z, int n, const float& threshold, const F& f) {
  for (int begin = 0; begin < n; begin += 16) {
    if (begin + 16 <= n && !AnyAbove(z + begin, threshold)) continue;
    for (int id = begin; id < std::min(n, begin + 16); ++id) {
      if (z[id] > threshold) f(id);
    }
  }
}

// Collects the first k ids in the order of Before; `out` itself is not sorted. Returns their
// number.
int CollectTopK(const float* z, int n, int k, Candidate* out) {
  const int capacity = static_cast<int>(std::min<int64_t>(n, int64_t{2} * k));
  float threshold = -kInfinity;
  int count = 0;
  ForEachAbove(z, n, threshold, [&](int id) HWY_ATTR {
    out[count++] = {z[id], id};
    if (count < capacity || count <= k) return;
    // Every later id must beat the k-th best so far; an equal one would lose by its id.
    std::nth_element(out, out + k - 1, out + count, Before);
    count = k;
    threshold = out[k - 1].z;
  });
  if (count > k) {
    std::nth_element(out, out + k - 1, out + count, Before);
    count = k;
  }
  return count;
}

int CollectAbove(const float* z, int n, float threshold, Candidate* out) {
  int count = 0;
  ForEachAbove(z, n, threshold, [&](int id) HWY_ATTR { out[count++] = {z[id], id}; });
  return count;
}

// Calls f(e^get(i)) for i = 0, 1, ... below n, until f returns false.
template <class Get, class F>
HWY_INLINE void ForEachExp(int n, const Get& get, const F& f) {
  const DF d;
  float p[16];
  for (int begin = 0; begin < n; begin += 16) {
    const int count = std::min(16, n - begin);
    for (int i = 0; i < 16; ++i) p[i] = i < count ? get(begin + i) : 0.0f;
    for (int r = 0; r < kRegs; ++r) {
      hn::StoreU(ExpF32(d, hn::LoadU(d, p + r * kLanes)), d, p + r * kLanes);
    }
    for (int i = 0; i < count; ++i) {
      if (!f(p[i])) return;
    }
  }
}

template <class Get>
HWY_INLINE double SumOfExp(int n, const Get& get) {
  double sum = 0;
  ForEachExp(n, get, [&](float p) HWY_ATTR {
    sum += p;
    return true;
  });
  return sum;
}

// Sorts the candidates and returns how many leading ones it takes to reach `mass`; count + 1 if all
// of them do not.
int CountOfMass(Candidate* candidates, int count, double mass) {
  std::sort(candidates, candidates + count, Before);
  double sum = 0;
  int kept = 0;
  ForEachExp(
      count, [&](int i) HWY_ATTR { return candidates[i].z; },
      [&](float p) HWY_ATTR {
        ++kept;
        sum += p;
        return sum < mass;
      });
  return sum < mass ? count + 1 : kept;
}

// Collects the smallest set of ids with probability top_p and returns its size. Does not sort the
// whole vocabulary: almost always a few ids near the largest logit suffice.
int CollectTopP(const float* z, int n, double top_p, Candidate* out) {
  const double mass = top_p * SumOfExp(n, [&](int i) HWY_ATTR { return z[i]; });
  int count = 0;
  for (const float depth : {6.0f, 12.0f, 24.0f, kInfinity}) {
    count = CollectAbove(z, n, -depth, out);
    const int kept = CountOfMass(out, count, mass);
    if (kept <= count) return kept;
  }
  return count;
}

// Applies top-k, top-p and min-p; returns how many candidates remain, at least one.
int Filter(const SampleRowArgs& args, const SampleScratch& scratch) {
  Candidate* candidates = scratch.candidates;
  const bool has_top_k = args.row.params.top_k > 0 && args.row.params.top_k < args.vocab;
  int count = 0;
  if (has_top_k) {
    count = CollectTopK(scratch.z, args.vocab, args.row.params.top_k, candidates);
    if (args.row.params.top_p < 1.0f) {
      const double total = SumOfExp(count, [&](int i) HWY_ATTR { return candidates[i].z; });
      count = std::min(count, CountOfMass(candidates, count, args.row.params.top_p * total));
    }
  } else if (args.row.params.top_p < 1.0f) {
    count = CollectTopP(scratch.z, args.vocab, args.row.params.top_p, candidates);
  } else {
    // The threshold is slightly lower than needed; the exact comparison follows.
    count =
        CollectAbove(scratch.z, args.vocab, std::log(args.row.params.min_p) - 0.01f, candidates);
  }
  if (args.row.params.min_p > 0.0f) {
    // The largest probability is e^0, and it is always kept.
    const float limit = std::min(args.row.params.min_p, 1.0f);
    int i = 0, kept = 0;
    ForEachExp(
        count, [&](int j) HWY_ATTR { return candidates[j].z; },
        [&](float p) HWY_ATTR {
          if (p >= limit) candidates[kept++] = candidates[i];
          ++i;
          return true;
        });
    count = kept;
  }
  return count;
}

// value[i] = z[i] + Gumbel noise made of bits[i], for i < 16.
HWY_INLINE void AddNoise(const float* z, const uint32_t* bits, float* value) {
  const DF d;
  float v[16];
  for (int i = 0; i < 16; ++i) v[i] = OpenUniform(bits[i]);
  for (int r = 0; r < kRegs; ++r) {
    const VF exponential = hn::Neg(hn::Log1p(d, hn::Neg(hn::LoadU(d, v + r * kLanes))));
    const VF noise = hn::Neg(hn::Log(d, exponential));
    hn::StoreU(hn::Add(hn::LoadU(d, z + r * kLanes), noise), d, value + r * kLanes);
  }
}

// Adds noise to the values of `count` <= 16 ids and updates `best` if one of them is better.
HWY_INLINE void DrawGroup(const SampleRowArgs& args, const Candidate* group, int count,
                          Candidate* best) {
  float z[16] = {};
  uint32_t bits[16] = {};
  Philox4x32 words{};
  int32_t block = -1;
  for (int i = 0; i < count; ++i) {
    if (group[i].id >> 2 != block) {
      block = group[i].id >> 2;
      words = SampleBits(args.row.params.seed, args.row.index, block);
    }
    z[i] = group[i].z;
    bits[i] = words.word[group[i].id & 3];
  }
  float value[16];
  AddNoise(z, bits, value);
  for (int i = 0; i < count; ++i) {
    const Candidate noisy{value[i], group[i].id};
    if (Before(noisy, *best)) *best = noisy;
  }
}

int32_t Draw(const SampleRowArgs& args, const Candidate* candidates, int count) {
  Candidate best{-kInfinity, candidates[0].id};
  for (int i = 0; i < count; i += 16) {
    DrawGroup(args, candidates + i, std::min(16, count - i), &best);
  }
  return best.id;
}

// Draws among all ids; skips ids that even the largest noise could not lift above the best so far.
int32_t DrawFromAll(const SampleRowArgs& args, const float* z, int32_t max_id) {
  const Candidate first{z[max_id], max_id};
  Candidate best{-kInfinity, max_id};
  DrawGroup(args, &first, 1, &best);
  float threshold = best.z - kMaxNoise;
  Candidate group[16];
  int count = 0;
  const auto flush = [&]() HWY_ATTR {
    DrawGroup(args, group, count, &best);
    threshold = best.z - kMaxNoise;
    count = 0;
  };
  ForEachAbove(z, args.vocab, threshold, [&](int id) HWY_ATTR {
    group[count++] = {z[id], id};
    if (count == 16) flush();
  });
  flush();
  return best.id;
}

int32_t ChooseToken(const SampleRowArgs& args, const SampleScratch& scratch) {
  const float* x = args.logits;
  if (args.row.num_penalties > 0 || args.row.num_biases > 0) {
    std::memcpy(scratch.z, x, args.vocab * sizeof(float));
    AddBiases(args, scratch.z);
    Penalise(args, scratch.z);
    x = scratch.z;
  }
  const Candidate max = FindMax(x, args.vocab);
  if (max.id == kNotFiniteToken || !(args.row.params.temperature > 0.0f)) return max.id;
  const DF d;
  const VF shift = hn::Set(d, max.z), temperature = hn::Set(d, args.row.params.temperature);
  MapElements(scratch.z, args.vocab,
              [&](auto load) HWY_ATTR { return hn::Div(hn::Sub(load(x), shift), temperature); });
  const bool has_top_k = args.row.params.top_k > 0 && args.row.params.top_k < args.vocab;
  if (!has_top_k && args.row.params.top_p >= 1.0f && !(args.row.params.min_p > 0.0f)) {
    return DrawFromAll(args, scratch.z, max.id);
  }
  return Draw(args, scratch.candidates, Filter(args, scratch));
}

}  // namespace HWY_NAMESPACE
}  // namespace cpu
}  // namespace kuiper
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kuiper::cpu {

HWY_EXPORT(ChooseToken);

size_t SampleScratchBytes(int vocab) {
  const size_t padded = (static_cast<size_t>(vocab) + 15) / 16 * 16;
  return padded * (sizeof(float) + sizeof(Candidate));
}

void Run(const Resources& resources, const SampleArgs& args) {
  const auto sample = HWY_DYNAMIC_DISPATCH(ChooseToken);
  KU_CHECK(args.vocab_limit <= resources.limits.vocab, "more than was reserved");
  const auto* rows = static_cast<const SampleRow*>(args.rows.data);
  ForEachItem(resources.pool, args.tokens.rows(), args.logits.numel(), [&](int64_t r, int thread) {
    SampleRowArgs own{.logits = args.logits.row<float>(r),
                      .vocab = args.vocab_limit,
                      .row = rows[r],
                      .penalty_tokens = nullptr,
                      .penalty_counts = nullptr,
                      .bias_tokens = nullptr,
                      .bias_values = nullptr};
    if (!own.row.params.has_penalties()) own.row.num_penalties = 0;
    if (own.row.num_penalties > 0) {
      own.penalty_tokens = args.penalty_tokens.ptr<int32_t>() + own.row.first_penalty;
      own.penalty_counts = args.penalty_counts.ptr<int32_t>() + own.row.first_penalty;
    }
    if (own.row.num_biases > 0) {
      own.bias_tokens = args.bias_tokens.ptr<int32_t>() + own.row.first_bias;
      own.bias_values = args.bias_values.ptr<float>() + own.row.first_bias;
    }
    float* memory = resources.Scratch<float>(thread);
    const size_t padded = (static_cast<size_t>(own.vocab) + 15) / 16 * 16;
    args.tokens.ptr<int32_t>()[r] =
        sample(own, {memory, reinterpret_cast<Candidate*>(memory + padded)});
  });
}

}  // namespace kuiper::cpu
#endif  // HWY_ONCE
