// Memory that several users share up to a limit. Whoever is alone takes what it needs, so that
// nothing is too large for an idle server.
#pragma once

#include <cstddef>

namespace kuiper {

class MemoryBudget {
 public:
  explicit MemoryBudget(size_t limit) : limit_(limit) {}

  // False, and nothing is taken, when others use memory and so much more is above the limit.
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
