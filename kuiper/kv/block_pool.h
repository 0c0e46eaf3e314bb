// Free pages and reference counts of a KV cache. Host only; no tensors. Page 0 is the null page: it
// is never allocated, and padded rows write to it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "kuiper/base/check.h"
#include "kuiper/kv/kv_event.h"

namespace kuiper {

// Notified when a page gets its second reference and when its count falls back to one.
class PageListener {
 public:
  virtual void OnShared(int32_t page) = 0;
  virtual void OnUnshared(int32_t page) = 0;

 protected:
  ~PageListener() = default;
};

class BlockPool {
 public:
  // num_pages includes the null page. page_size in tokens.
  BlockPool(int num_pages, int page_size);

  // Appends `count` pages to *pages, each with one reference. Returns false and changes nothing if
  // too few are free. Takes the lowest free ids, so that lazily allocated storage stays small and
  // its end becomes free again.
  [[nodiscard]] bool Allocate(int count, std::vector<int32_t>* pages);
  void AddRef(int32_t page);
  // Drops one reference; the last one frees the page.
  void Release(int32_t page);
  void Release(const std::vector<int32_t>& pages) {
    for (int32_t page : pages) Release(page);
  }
  // Sets the only listener; null removes it. Its callbacks must not call AddRef or Release.
  void set_listener(PageListener* listener);

  // Sets the observer of page events; empty removes it. The pool does not know the owners of
  // references, so each caller that takes or releases one reports it right after doing so.
  void set_observer(KvObserver observer) { observer_ = std::move(observer); }
  // Reports that the holder's page `index` is `page`, or no longer is.
  void NotifyHeld(KvEvent::Kind kind, const PageHolder& holder, int index, int32_t page) const {
    if (observer_) Notify({.kind = kind, .holder = holder, .index = index, .page = page});
  }
  void NotifyReleased(const PageHolder& holder, int index, int32_t page) const {
    const bool is_free = observer_ && ref_count(page) == 0;
    NotifyHeld(is_free ? KvEvent::Kind::kFree : KvEvent::Kind::kRelease, holder, index, page);
  }
  // Sends the event to the observer, with num_holders and num_free filled in.
  void Notify(KvEvent event) const;

  int ref_count(int32_t page) const {
    KU_CHECK(page >= 1 && page < static_cast<int32_t>(ref_counts_.size()), "no such page");
    return ref_counts_[page];
  }
  int num_free() const { return num_pages() - num_used_; }
  int num_used() const { return num_used_; }      // pages with at least one reference
  int num_shared() const { return num_shared_; }  // pages with more than one reference
  // Usable pages, without the null page.
  int num_pages() const { return static_cast<int>(ref_counts_.size()) - 1; }
  int page_size() const { return page_size_; }
  int end() const { return end_; }  // 1 + the largest page in use, or 1: what storage must cover
  int peak_used() const { return peak_used_; }  // most pages in use at one time

  // CHECKs that free pages and counts agree; for tests and debug runs.
  void CheckInvariants() const;

 private:
  int page_size_;
  std::vector<int32_t> ref_counts_;  // [num_pages + null]
  std::vector<int32_t> free_;        // a heap with the lowest id on top
  int end_ = 1;
  int num_used_ = 0;
  int num_shared_ = 0;
  int peak_used_ = 0;
  PageListener* listener_ = nullptr;
  KvObserver observer_;
};

}  // namespace kuiper
