#include "kuiper/engine/sequence_queue.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "kuiper/base/check.h"

namespace kuiper {

Sequence& SequenceQueue::Add(std::unique_ptr<Sequence> seq) {
  Sequence& added = *seq;
  const bool is_new = by_id_.try_emplace(added.id, std::move(seq)).second;
  KU_CHECK(is_new, "two sequences have the same id");
  return added;
}

Sequence* SequenceQueue::Find(int64_t id) const {
  const auto it = by_id_.find(id);
  return it == by_id_.end() ? nullptr : it->second.get();
}

std::unique_ptr<Sequence> SequenceQueue::Remove(int64_t id) {
  const auto it = by_id_.find(id);
  if (it == by_id_.end()) return nullptr;
  std::unique_ptr<Sequence> seq = std::move(it->second);
  by_id_.erase(it);
  Leave(*seq);
  first_is_refused_ = false;
  return seq;
}

void SequenceQueue::Wait(Sequence& seq) {
  Leave(seq);
  seq.place = Sequence::Place::kWaiting;
  const auto added = waiting_.emplace(seq.rank, &seq).first;
  if (added == waiting_.begin()) first_is_refused_ = false;
}

void SequenceQueue::Run(Sequence& seq) {
  Leave(seq);
  seq.place = Sequence::Place::kRunning;
  const auto at = std::upper_bound(
      running_.begin(), running_.end(), seq.rank,
      [](const Sequence::Rank& rank, const Sequence* other) { return rank < other->rank; });
  running_.insert(at, &seq);
}

bool SequenceQueue::HasSourcesOf(const std::vector<StepPlan::PageCopy>& copies) const {
  return std::ranges::all_of(copies, [this](const StepPlan::PageCopy& copy) {
    return std::ranges::any_of(running_, [&](const Sequence* seq) {
      return std::ranges::find(seq->pages, copy.from) != seq->pages.end();
    });
  });
}

int SequenceQueue::num_reserved_seqs() const {
  return std::accumulate(running_.begin(), running_.end(), 0,
                         [](int sum, const Sequence* seq) { return sum + seq->num_reserved_seqs; });
}

void SequenceQueue::Preempt(Sequence& seq) {
  Leave(seq);
  if (!seq.is_paused) Wait(seq);
  first_is_refused_ = false;
}

void SequenceQueue::Leave(Sequence& seq) {
  if (seq.place == Sequence::Place::kWaiting) {
    waiting_.erase(seq.rank);
  } else if (seq.place == Sequence::Place::kRunning) {
    const auto at = std::lower_bound(
        running_.begin(), running_.end(), seq.rank,
        [](const Sequence* other, const Sequence::Rank& rank) { return other->rank < rank; });
    KU_CHECK(at != running_.end() && *at == &seq, "the sequence does not run");
    running_.erase(at);
  }
  seq.place = Sequence::Place::kApart;
}

}  // namespace kuiper
