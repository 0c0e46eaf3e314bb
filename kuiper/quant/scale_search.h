// Activation-aware quantisation (Lin et al. 2023, AWQ). Weights are multiplied by a scale before
// they are rounded, so that inputs with large average magnitude get finer steps. Groups may also
// clip their extremes. The search minimises the error of the layer's outputs on a text.
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

// Returns the sum over sampled inputs x [in] and all outputs of (W x)^2. `ops` must be for the CPU,
// with room for the samples.
double OutputEnergy(const FloatMatrix& weights, const InputStatistics& inputs, Ops& ops);
// Returns `a` - `b`, of the same shape.
FloatMatrix Difference(const FloatMatrix& a, const std::vector<float>& b);

// Returns the scales s [in] for matrices that share their input: multiply their columns by s and
// divide the input by s. s = mean|x|^r for the r among 0, 0.05 ... 0.95 with the least error; r = 0
// changes nothing. Calls `tick` after each r.
std::vector<float> SearchScales(const std::vector<const FloatMatrix*>& matrices,
                                const InputStatistics& inputs, const CodeScheme& scheme, Ops& ops,
                                const std::function<void()>& tick);
inline constexpr int kNumExponents = 20;

// Returns the factor to shrink each group's extremes by, [out, groups]: one of 1, 0.95 ... 0.55,
// chosen by the error that this group alone causes in the outputs.
std::vector<float> SearchShrinks(const FloatMatrix& matrix, const InputStatistics& inputs,
                                 const CodeScheme& scheme);

}  // namespace kuiper
