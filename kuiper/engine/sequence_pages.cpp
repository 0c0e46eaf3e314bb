#include "kuiper/engine/sequence_pages.h"

#include <algorithm>
#include <map>

#include "kuiper/base/check.h"

namespace kuiper {
namespace {

PageHolder HolderOf(const Sequence& seq) {
  return {.request = seq.request, .sequence = seq.id};
}

}  // namespace

int SequencePages::num_available() const {
  return pool_.num_free() + (reuse_ != nullptr ? reuse_->num_evictable() : 0);
}

int SequencePages::NumReserved(const Sequence& seq) const {
  if (on_full_ != OnFull::kPreempt) return seq.max_pages;
  // All known tokens and one more page, so that a new sequence does not cause a preemption at once.
  return std::min(PagesFor(seq.num_tokens()) + 1, seq.max_pages);
}

int SequencePages::NumReservedFor(std::span<Sequence* const> running) const {
  int promised = 0;
  std::map<int32_t, int> writers;  // writers of each shared page
  for (const Sequence* seq : running) {
    promised += std::max(0, NumReserved(*seq) - static_cast<int>(seq->pages.size()));
    if (IsWritePageShared(*seq)) ++writers[seq->pages[seq->num_computed / pool_.page_size()]];
  }
  // Each writer of a shared page gets a copy, except the last writer if the page has no other
  // holder.
  for (const auto& [page, count] : writers) {
    promised += std::min(count, pool_.ref_count(page) - 1);
  }
  return promised;
}

bool SequencePages::IsWritePageShared(const Sequence& seq) const {
  const size_t index = seq.num_computed / pool_.page_size();
  return index < seq.pages.size() && pool_.ref_count(seq.pages[index]) > 1;
}

bool SequencePages::GrowTo(Sequence& seq, int num_tokens, std::vector<StepPlan::PageCopy>* copies) {
  const bool is_shared = IsWritePageShared(seq);
  const int num_pages = static_cast<int>(seq.pages.size());
  const bool grows = num_tokens > num_pages * pool_.page_size();
  if (!grows && !is_shared) return true;
  const int missing = (grows ? PagesFor(num_tokens) - num_pages : 0) + (is_shared ? 1 : 0);
  if (reuse_ != nullptr && pool_.num_free() < missing) {
    reuse_->Evict(missing - pool_.num_free());
  }
  if (pool_.num_free() < missing) return false;
  const auto allocate = [&](int index) {
    KU_CHECK(pool_.Allocate(1, &seq.pages));
    pool_.NotifyHeld(KvEvent::Kind::kAllocate, HolderOf(seq), index, seq.pages.back());
  };
  for (int index = num_pages; index < num_pages + missing - is_shared; ++index) allocate(index);
  if (is_shared) {
    const int index = seq.num_computed / pool_.page_size();
    const int kept = seq.num_computed % pool_.page_size();
    const int32_t shared = seq.pages[index];
    pool_.Release(shared);
    pool_.NotifyReleased(HolderOf(seq), index, shared);
    allocate(index);
    const int32_t page = seq.pages[index] = seq.pages.back();
    seq.pages.pop_back();
    if (kept > 0) {
      copies->push_back({shared, page, kept});
      pool_.Notify({.kind = KvEvent::Kind::kCopy,
                    .holder = HolderOf(seq),
                    .index = index,
                    .page = page,
                    .from = shared,
                    .num_tokens = kept});
    }
    seq.num_sent_pages = std::min(seq.num_sent_pages, index);
  }
  return true;
}

int SequencePages::Share(const Sequence& parent, Sequence* child) {
  KU_CHECK(child->keys == parent.keys, "a fork has the pictures of its parent");
  const std::span known =
      std::span(parent.tokens).first(std::min(parent.num_computed, parent.num_known()));
  const std::span wanted = std::span(child->tokens).first(child->num_tokens() - 1);
  const auto same = std::mismatch(known.begin(), known.end(), wanted.begin(), wanted.end()).first;
  const int num_tokens = static_cast<int>(same - known.begin());
  child->pages.assign(parent.pages.begin(), parent.pages.begin() + PagesFor(num_tokens));
  for (size_t i = 0; i < child->pages.size(); ++i) {
    pool_.AddRef(child->pages[i]);
    pool_.NotifyHeld(KvEvent::Kind::kShare, HolderOf(*child), static_cast<int>(i), child->pages[i]);
  }
  return num_tokens;
}

std::span<const uint64_t> SequencePages::KeysOf(const Sequence& seq, int begin, int end) {
  keys_.assign(seq.tokens.begin() + begin, seq.tokens.begin() + end);
  for (int i = begin; i < std::min(end, static_cast<int>(seq.keys.size())); ++i) {
    keys_[i - begin] = seq.keys[i];
  }
  return keys_;
}

KvReuse::Match SequencePages::Acquire(const Sequence& seq, int max_tokens) {
  if (reuse_ == nullptr) return {};
  return reuse_->Acquire(KeysOf(seq, 0, seq.num_known()), max_tokens);
}

void SequencePages::Take(KvReuse::Match match, Sequence* seq) {
  seq->pages = std::move(match.pages);
  seq->cursor = match.cursor;
  for (size_t i = 0; i < seq->pages.size(); ++i) {
    pool_.NotifyHeld(KvEvent::Kind::kShare, HolderOf(*seq), static_cast<int>(i), seq->pages[i]);
  }
}

void SequencePages::Return(const Sequence& seq, const KvReuse::Match& match) {
  if (reuse_ != nullptr) reuse_->Return(KeysOf(seq, 0, seq.num_known()), match);
}

bool SequencePages::Computed(Sequence& seq, int before, int num_tokens) {
  const int on_full_pages = num_tokens - num_tokens % pool_.page_size();
  if (reuse_ != nullptr && on_full_pages > before) InsertTokens(seq, num_tokens, false);
  if (seq.held_sources.empty() || num_tokens < seq.overrides.back().end()) return false;
  ReleaseSources(seq);
  return true;
}

void SequencePages::InsertPages(Sequence& seq) {
  const bool has_any = seq.is_launched && !seq.pages.empty();
  if (reuse_ != nullptr && has_any) InsertTokens(seq, seq.num_computed, true);
}

void SequencePages::InsertTokens(Sequence& seq, int num_tokens, bool finished) {
  const auto offer = [&] {
    const int known = seq.cursor.num_pages;
    const int begin = known * pool_.page_size();
    if (begin >= num_tokens) return true;
    seq.num_sent_pages = std::min(seq.num_sent_pages, known);  // insertion may exchange pages
    const auto keys = KeysOf(seq, begin, num_tokens);
    const auto pages = std::span(seq.pages).subspan(known);
    return finished ? reuse_->Finished(keys, pages, &seq.cursor, HolderOf(seq))
                    : reuse_->Computed(keys, pages, &seq.cursor, HolderOf(seq));
  };
  if (offer()) return;
  seq.cursor = {};
  KU_CHECK(offer(), "inserting from the start cannot fail");
}

bool SequencePages::HoldSources(Sequence& seq, int num_computed) {
  KU_CHECK(seq.held_sources.empty(), "the sequence holds its sources");
  std::vector<int64_t> wanted;
  for (const OverrideSpan& span : seq.overrides) {
    if (span.end() > num_computed) wanted.push_back(span.source);
  }
  if (wanted.empty()) return true;
  std::sort(wanted.begin(), wanted.end());
  wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
  if (!sources_->Hold(wanted)) return false;
  seq.held_sources = std::move(wanted);
  return true;
}

void SequencePages::ReleaseSources(Sequence& seq) {
  if (seq.held_sources.empty()) return;
  sources_->Release(seq.held_sources);
  seq.held_sources.clear();
}

std::vector<int32_t> SequencePages::Release(Sequence& seq) {
  ReleaseSources(seq);
  for (size_t i = 0; i < seq.pages.size(); ++i) {
    pool_.Release(seq.pages[i]);
    pool_.NotifyReleased(HolderOf(seq), static_cast<int>(i), seq.pages[i]);
  }
  seq.cursor = {};
  seq.num_sent_pages = 0;
  return std::exchange(seq.pages, {});
}

void SequencePages::NotifySwapped(KvEvent::Kind kind, const Sequence& seq, int index,
                                  int32_t page) const {
  pool_.Notify({.kind = kind,
                .holder = HolderOf(seq),
                .index = index,
                .page = page,
                .host_page = seq.host_pages[index]});
}

bool SequencePages::HasRoomOnHost(const Sequence& seq) const {
  return host_pages_ != nullptr && PagesFor(seq.num_computed) <= host_pages_->num_free();
}

int SequencePages::SwapOut(Sequence& seq) {
  const int count = PagesFor(seq.num_computed);
  KU_CHECK(host_pages_->Allocate(count, &seq.host_pages));
  for (int i = 0; i < count; ++i) {
    moves_.push_back({seq.pages[i], seq.host_pages[i], true});
    NotifySwapped(KvEvent::Kind::kSwapOut, seq, i, seq.pages[i]);
  }
  Release(seq);
  return count;
}

// Pages matched in the prefix tree are not copied.
int SequencePages::SwapIn(Sequence& seq, std::vector<StepPlan::PageCopy>* copies) {
  const int matched = static_cast<int>(seq.pages.size());
  const int count = static_cast<int>(seq.host_pages.size());
  KU_CHECK(GrowTo(seq, seq.num_computed, copies), "an admitted sequence finds its pages");
  for (int i = matched; i < count; ++i) {
    moves_.push_back({seq.pages[i], seq.host_pages[i], false});
    NotifySwapped(KvEvent::Kind::kSwapIn, seq, i, seq.pages[i]);
  }
  seq.is_launched = false;
  ReleaseHostPages(seq);
  return std::max(0, count - matched);
}

void SequencePages::ReleaseHostPages(Sequence& seq) {
  if (host_pages_ != nullptr) host_pages_->Release(seq.host_pages);
  for (size_t i = 0; i < seq.host_pages.size(); ++i) {
    NotifySwapped(KvEvent::Kind::kSwapFree, seq, static_cast<int>(i), 0);
  }
  seq.host_pages.clear();
}

}  // namespace kuiper
