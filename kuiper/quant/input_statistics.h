// What is known of the inputs of a linear layer: enough to say how much an error of the weights
// changes its outputs. Filled while a text runs through the float model; knows no model.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kuiper {

class InputStatistics {
 public:
  // For rows [in] of a text of `num_rows` tokens; in a multiple of the group size.
  InputStatistics(int64_t in, int group_size, int64_t num_rows, int num_threads);

  // x [count, in], `stride` elements from row to row.
  void Add(const float* x, int64_t count, int64_t stride);
  // The inputs are divided by s [in], each above 0.
  void DivideBy(std::span<const float> s);

  int64_t in() const { return in_; }
  int group_size() const { return static_cast<int>(group_size_); }
  int num_threads() const { return num_threads_; }
  // mean |x_k| [in].
  std::vector<float> MeanMagnitudes() const;
  // Sum over the rows of x_i x_j for i, j of a group, [group_size, group_size].
  std::span<const float> Products(int64_t group) const;
  // Some of the rows, spread over the text: [num_samples, in], at most kMaxSamples.
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
