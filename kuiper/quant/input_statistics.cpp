#include "kuiper/quant/input_statistics.h"

#include <cmath>

#include "kuiper/base/check.h"
#include "kuiper/base/parallel.h"

namespace kuiper {

InputStatistics::InputStatistics(int64_t in, int group_size, int64_t num_rows, int num_threads)
    : in_(in),
      group_size_(group_size),
      every_((num_rows + kMaxSamples - 1) / kMaxSamples),
      num_threads_(num_threads),
      magnitudes_(static_cast<size_t>(in)),
      products_(static_cast<size_t>(in * group_size)) {
  KU_CHECK(in % group_size == 0 && num_rows > 0);
}

void InputStatistics::Add(const float* x, int64_t count, int64_t stride) {
  for (int64_t row = 0; row < count; ++row) {
    const float* values = x + row * stride;
    for (int64_t k = 0; k < in_; ++k) magnitudes_[k] += std::abs(values[k]);
    if (num_rows_++ % every_ == 0) samples_.insert(samples_.end(), values, values + in_);
  }
  AddProducts(x, count, stride);
}

void InputStatistics::AddProducts(const float* x, int64_t count, int64_t stride) {
  ParallelRanges(in_ / group_size_, num_threads_, [&](int64_t begin, int64_t end) {
    for (int64_t group = begin; group < end; ++group) {
      float* products = products_.data() + group * group_size_ * group_size_;
      for (int64_t row = 0; row < count; ++row) {
        const float* values = x + row * stride + group * group_size_;
        for (int64_t i = 0; i < group_size_; ++i) {
          float* to = products + i * group_size_;
          for (int64_t j = 0; j < group_size_; ++j) to[j] += values[i] * values[j];
        }
      }
    }
  });
}

void InputStatistics::DivideBy(std::span<const float> s) {
  KU_CHECK(static_cast<int64_t>(s.size()) == in_);
  for (int64_t k = 0; k < in_; ++k) magnitudes_[k] /= s[k];
  for (size_t i = 0; i < samples_.size(); ++i) samples_[i] /= s[i % in_];
  for (size_t i = 0; i < products_.size(); ++i) {
    // Index of the input over all groups.
    const int64_t row = static_cast<int64_t>(i) / group_size_;
    const int64_t column = row / group_size_ * group_size_ + static_cast<int64_t>(i) % group_size_;
    products_[i] /= s[row] * s[column];
  }
}

std::vector<float> InputStatistics::MeanMagnitudes() const {
  std::vector<float> means;
  for (const double sum : magnitudes_) {
    means.push_back(static_cast<float>(sum / static_cast<double>(num_rows_)));
  }
  return means;
}

std::span<const float> InputStatistics::Products(int64_t group) const {
  const int64_t size = group_size_ * group_size_;
  return std::span(products_).subspan(group * size, size);
}

}  // namespace kuiper
