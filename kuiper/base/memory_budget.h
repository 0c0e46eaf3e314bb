// A memory limit shared by several users. A single user may exceed it, so that no request is too
// large for an idle server.
#pragma once

#include <cstddef>

namespace kuiper {

class MemoryBudget {
 public:
  explicit MemoryBudget(size_t limit) : limit_(limit) {}

  // Returns false, without taking anything, if others use memory and `bytes` more would exceed the
  // limit.
  bool Take(size_t bytes) {
    if (used_ > 0 && used_ + bytes > limit_) return false;
    used_ += bytes;
    return true;
  }
  void Return(size_t bytes) { used_ -= bytes; }
  size_t used() const { return used_; }

 private:
  size_t limit_;
  size_t used_ = 0;
};

}  // namespace kuiper
