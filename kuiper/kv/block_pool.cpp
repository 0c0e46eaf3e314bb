#include "kuiper/kv/block_pool.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "kuiper/base/check.h"

namespace kuiper {

BlockPool::BlockPool(int num_pages, int page_size) : page_size_(page_size) {
  KU_CHECK(num_pages >= 1, "a pool has at least the null page");
  KU_CHECK(page_size >= 1);
  ref_counts_.resize(num_pages);
  free_.resize(num_pages - 1);
  std::iota(free_.begin(), free_.end(), 1);  // ascending: a heap
}

bool BlockPool::Allocate(int count, std::vector<int32_t>* pages) {
  KU_CHECK(count >= 0);
  if (count > num_free()) return false;
  for (int i = 0; i < count; ++i) {
    std::pop_heap(free_.begin(), free_.end(), std::greater<>());
    const int32_t page = free_.back();
    free_.pop_back();
    ref_counts_[page] = 1;
    pages->push_back(page);
    end_ = std::max(end_, page + 1);
  }
  num_used_ += count;
  peak_used_ = std::max(peak_used_, num_used_);
  return true;
}

void BlockPool::AddRef(int32_t page) {
  KU_CHECK(ref_count(page) > 0, "page is free");
  if (++ref_counts_[page] != 2) return;
  ++num_shared_;
  if (listener_ != nullptr) listener_->OnShared(page);
}

void BlockPool::Release(int32_t page) {
  KU_CHECK(ref_count(page) > 0, "page is free");
  const int32_t left = --ref_counts_[page];
  if (left == 1) {
    --num_shared_;
    if (listener_ != nullptr) listener_->OnUnshared(page);
  } else if (left == 0) {
    --num_used_;
    free_.push_back(page);
    std::push_heap(free_.begin(), free_.end(), std::greater<>());
    while (end_ > 1 && ref_counts_[end_ - 1] == 0) --end_;
  }
}

void BlockPool::set_listener(PageListener* listener) {
  KU_CHECK(listener == nullptr || listener_ == nullptr, "the pool has a listener");
  listener_ = listener;
}

void BlockPool::Notify(KvEvent event) const {
  if (!observer_) return;
  event.num_holders = event.page > 0 ? ref_count(event.page) : 0;
  event.num_free = num_free();
  observer_(event);
}

void BlockPool::CheckInvariants() const {
  const int total = static_cast<int>(ref_counts_.size());
  KU_CHECK(ref_counts_[0] == 0, "the null page has no references");
  KU_CHECK(std::is_heap(free_.begin(), free_.end(), std::greater<>()));
  std::vector<bool> is_free(total, false);
  for (int32_t page : free_) {
    KU_CHECK(page >= 1 && page < total, "no such page");
    KU_CHECK(!is_free[page], "page is free twice");
    is_free[page] = true;
  }
  int used = 0;
  int shared = 0;
  int end = 1;
  for (int page = 1; page < total; ++page) {
    const int32_t refs = ref_counts_[page];
    KU_CHECK(refs >= 0);
    KU_CHECK((refs == 0) == is_free[page], "page is both free and referenced, or neither");
    used += refs > 0;
    shared += refs > 1;
    if (refs > 0) end = page + 1;
  }
  KU_CHECK(used == num_used_ && shared == num_shared_ && end == end_);
  KU_CHECK(used <= peak_used_ && peak_used_ < total);
}

}  // namespace kuiper
