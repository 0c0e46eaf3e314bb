#include "kuiper/quant/scale_search.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kuiper/base/check.h"
#include "kuiper/base/parallel.h"
#include "kuiper/ops/op_args.h"

namespace kuiper {
namespace {

// Returns mean^exponent, scaled so that the largest and the smallest value are equally far from 1.
std::vector<float> ScalesOf(const std::vector<float>& means, float exponent) {
  constexpr float kSmallest = 1e-4f;
  std::vector<float> scales;
  scales.reserve(means.size());
  for (const float mean : means) {
    scales.push_back(std::max(std::pow(std::max(mean, 1e-8f), exponent), kSmallest));
  }
  const auto [low, high] = std::minmax_element(scales.begin(), scales.end());
  const float middle = std::sqrt(*low * *high);
  for (float& scale : scales) scale /= middle;
  return scales;
}

// Returns W - Q(W s) / s: the change of the weights by rounding the scaled columns.
void RoundingError(const FloatMatrix& matrix, const std::vector<float>& s, const CodeScheme& scheme,
                   int num_threads, FloatMatrix* error) {
  error->out = matrix.out;
  error->in = matrix.in;
  error->values.resize(matrix.values.size());
  const int64_t size = scheme.group_size;
  ParallelRanges(matrix.out * matrix.in / size, num_threads, [&](int64_t begin, int64_t end) {
    std::vector<float> scaled(static_cast<size_t>(size)), rounded(static_cast<size_t>(size));
    for (int64_t g = begin; g < end; ++g) {
      const float* values = matrix.values.data() + g * size;
      const float* factors = s.data() + g * size % matrix.in;
      for (int64_t i = 0; i < size; ++i) scaled[i] = values[i] * factors[i];
      RoundTo(GridOf(scaled, 1.f, scheme), scheme, scaled, rounded.data());
      float* to = error->values.data() + g * size;
      for (int64_t i = 0; i < size; ++i) to[i] = values[i] - rounded[i] / factors[i];
    }
  });
}

// Returns d^T P d.
float Quadratic(std::span<const float> d, std::span<const float> products) {
  float sum = 0;
  for (size_t i = 0; i < d.size(); ++i) {
    const float* row = products.data() + i * d.size();
    float lanes[16] = {};
    for (size_t j = 0; j < d.size(); j += 16) {
      for (size_t lane = 0; lane < 16; ++lane) lanes[lane] += row[j + lane] * d[j + lane];
    }
    float product = 0;
    for (const float lane : lanes) product += lane;
    sum += d[i] * product;
  }
  return sum;
}

}  // namespace

double OutputEnergy(const FloatMatrix& weights, const InputStatistics& inputs, Ops& ops) {
  KU_CHECK(weights.in == inputs.in());
  const int64_t rows = inputs.num_samples();
  std::vector<float> outputs(static_cast<size_t>(rows * weights.out));
  const auto tensor = [](const std::vector<float>& values, int64_t count, int64_t size) {
    return Tensor::Dense(const_cast<float*>(values.data()), DType::kF32, {count, size});
  };
  Linear linear;
  linear.in = static_cast<int>(weights.in);
  linear.out = static_cast<int>(weights.out);
  linear.num_parts = 1;
  linear.parts[0].weight = DenseWeight(tensor(weights.values, weights.out, weights.in));
  ops.Run(ApplyArgs{.out = tensor(outputs, rows, weights.out),
                    .x = tensor(inputs.samples(), rows, weights.in),
                    .linear = linear});
  ops.device().Sync();
  double sum = 0;
  for (const float y : outputs) sum += static_cast<double>(y) * y;
  return sum;
}

FloatMatrix Difference(const FloatMatrix& a, const std::vector<float>& b) {
  KU_CHECK(a.values.size() == b.size());
  FloatMatrix difference = a;
  for (size_t i = 0; i < b.size(); ++i) difference.values[i] -= b[i];
  return difference;
}

std::vector<float> SearchScales(const std::vector<const FloatMatrix*>& matrices,
                                const InputStatistics& inputs, const CodeScheme& scheme, Ops& ops,
                                const std::function<void()>& tick) {
  const std::vector<float> means = inputs.MeanMagnitudes();
  std::vector<float> best;
  double least = std::numeric_limits<double>::infinity();
  FloatMatrix error;
  for (int i = 0; i < kNumExponents; ++i) {
    const std::vector<float> scales =
        ScalesOf(means, static_cast<float>(i) / static_cast<float>(kNumExponents));
    double sum = 0;
    for (const FloatMatrix* matrix : matrices) {
      RoundingError(*matrix, scales, scheme, inputs.num_threads(), &error);
      sum += OutputEnergy(error, inputs, ops);
    }
    if (best.empty() || sum < least) {
      least = sum;
      best = scales;
    }
    tick();
  }
  return best;
}

std::vector<float> SearchShrinks(const FloatMatrix& matrix, const InputStatistics& inputs,
                                 const CodeScheme& scheme) {
  constexpr int kSteps = 10;
  constexpr float kStep = 0.05f;
  const int64_t size = scheme.group_size, groups = matrix.in / size;
  std::vector<float> shrinks(static_cast<size_t>(matrix.out * groups), 1.f);
  ParallelRanges(matrix.out * groups, inputs.num_threads(), [&](int64_t begin, int64_t end) {
    std::vector<float> error(static_cast<size_t>(size));
    for (int64_t g = begin; g < end; ++g) {
      const auto group = std::span(matrix.values).subspan(g * size, size);
      float least = std::numeric_limits<float>::infinity();
      for (int step = 0; step < kSteps; ++step) {
        const float shrink = 1.f - kStep * static_cast<float>(step);
        RoundTo(GridOf(group, shrink, scheme), scheme, group, error.data());
        for (int64_t i = 0; i < size; ++i) error[i] -= group[i];
        const float sum = Quadratic(error, inputs.Products(g % groups));
        if (sum >= least) continue;
        least = sum;
        shrinks[g] = shrink;
      }
    }
  });
  return shrinks;
}

}  // namespace kuiper
