// Statistics of a linear layer's inputs: enough to estimate how much an error of the weights
// changes its outputs. Filled while a text runs through the float model; independent of the model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kuiper {

class InputStatistics {
 public:
  // For rows [in] of a text of `num_rows` tokens; `in` is a multiple of the group size.
  InputStatistics(int64_t in, int group_size, int64_t num_rows, int num_threads);

  // Adds x [count, in], with `stride` elements between rows.
  void Add(const float* x, int64_t count, int64_t stride);
  // Records that the inputs are divided by s [in], each above 0.
  void DivideBy(std::span<const float> s);

  int64_t in() const { return in_; }
  int group_size() const { return static_cast<int>(group_size_); }
  int num_threads() const { return num_threads_; }
  // Returns mean |x_k| [in].
  std::vector<float> MeanMagnitudes() const;
  // Returns the sums over the rows of x_i x_j for i, j in a group, [group_size, group_size].
  std::span<const float> Products(int64_t group) const;
  // Some of the rows, spread over the text: [num_samples, in], at most kMaxSamples rows.
  const std::vector<float>& samples() const { return samples_; }
  int64_t num_samples() const { return static_cast<int64_t>(samples_.size()) / in_; }

  static constexpr int64_t kMaxSamples = 512;

 private:
  void AddProducts(const float* x, int64_t count, int64_t stride);

  int64_t in_, group_size_, every_;
  int num_threads_;
  int64_t num_rows_ = 0;
  std::vector<double> magnitudes_;  // [in], sums
  std::vector<float> products_;     // [groups, group_size, group_size]
  std::vector<float> samples_;
};

}  // namespace kuiper
