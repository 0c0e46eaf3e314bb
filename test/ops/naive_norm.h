// RMSNorm by its definition, in double precision.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace kuiper::test {

// x [rows, n], weight [n].
inline std::vector<double> NaiveRmsNorm(const std::vector<float>& x,
                                        const std::vector<float>& weight, double eps) {
  const size_t n = weight.size();
  std::vector<double> out;
  for (size_t row = 0; row < x.size() / n; ++row) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += double{x[row * n + i]} * x[row * n + i];
    const double scale = 1.0 / std::sqrt(sum / static_cast<double>(n) + eps);
    for (size_t i = 0; i < n; ++i) out.push_back(x[row * n + i] * scale * weight[i]);
  }
  return out;
}

}  // namespace kuiper::test
