// The runnable threads of a block, in the order in which the machine resumes them.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace kuiper::simt {

class ReadyRing {
 public:
  // Empties the ring and makes room for num_threads indices.
  void Reset(size_t num_threads) {
    indices_.resize(num_threads);
    head_ = count_ = 0;
  }
  bool empty() const { return count_ == 0; }

  void PushBack(int index) { indices_[At(count_++)] = index; }
  void PushFront(int index) {
    head_ = (head_ == 0 ? indices_.size() : head_) - 1;
    indices_[head_] = index;
    ++count_;
  }
  int PopFront() {
    const int index = indices_[head_];
    if (++head_ == indices_.size()) head_ = 0;
    --count_;
    return index;
  }
  // Removes the index at position `random` (mod count) and moves the first index to that position.
  int PopRandom(size_t random) {
    std::swap(indices_[At(random % count_)], indices_[head_]);
    return PopFront();
  }

 private:
  size_t At(size_t place) const { return (head_ + place) % indices_.size(); }

  std::vector<int> indices_;
  size_t head_ = 0, count_ = 0;
};

}  // namespace kuiper::simt
