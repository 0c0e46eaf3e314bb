// Activation-aware quantisation (Lin et al. 2023, AWQ): inputs that are large on average get finer
// steps, because their weights are multiplied by a scale before they are rounded; and groups may
// give up their extremes. What is searched is the least error of the layer's outputs on a text.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "kuiper/ops/ops.h"
#include "kuiper/quant/codes.h"
#include "kuiper/quant/input_statistics.h"

namespace kuiper {

// Weights [out, in] in FP32.
struct FloatMatrix {
  int64_t out = 0, in = 0;
  std::vector<float> values;
};

// Sum over sampled inputs x [in] and all outputs of (W x)^2. `ops` are those of the CPU, with room
// for the samples.
double OutputEnergy(const FloatMatrix& weights, const InputStatistics& inputs, Ops& ops);
// `a` - `b`, of one shape.
FloatMatrix Difference(const FloatMatrix& a, const std::vector<float>& b);

// The scales s [in] for matrices that share their input: the columns of all of them are to be
// multiplied by s and the input divided by it. s = mean|x|^r for the r among 0, 0.05 ... 0.95 with
// the least error; r = 0 is no change. `tick` is called after each r.
std::vector<float> SearchScales(const std::vector<const FloatMatrix*>& matrices,
                                const InputStatistics& inputs, const CodeScheme& scheme, Ops& ops,
                                const std::function<void()>& tick);
inline constexpr int kNumExponents = 20;

// How far each group's extremes are to be drawn in, [out, groups]: a factor among 1, 0.95 ... 0.55,
// by the error that the group alone makes in the outputs.
std::vector<float> SearchShrinks(const FloatMatrix& matrix, const InputStatistics& inputs,
                                 const CodeScheme& scheme);

}  // namespace kuiper
