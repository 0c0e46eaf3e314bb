// All sequences of a scheduler: the waiting ones in order, and the running ones. Independent of
// pages and plans.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "kuiper/engine/sequence.h"

namespace kuiper {

class SequenceQueue {
 public:
  // Adds a new sequence, which neither waits nor runs yet.
  Sequence& Add(std::unique_ptr<Sequence> seq);
  Sequence* Find(int64_t id) const;
  // Returns null if no sequence has this id.
  std::unique_ptr<Sequence> Remove(int64_t id);

  // Calls f(Sequence&, entry) for the plan's entries whose sequences have not ended.
  template <typename F>
  void ForSequences(const StepPlan& plan, const F& f) const {
    size_t next = 0;
    for (const StepPlan::Entry& entry : plan.entries) {
      // Most entries are in the order of running_.
      const bool is_next = next < running_.size() && running_[next]->id == entry.sequence;
      Sequence* seq = is_next ? running_[next++] : Find(entry.sequence);
      if (seq != nullptr) f(*seq, entry);
    }
  }

  // Makes the sequence wait, or run, at its rank.
  void Wait(Sequence& seq);
  void Run(Sequence& seq);
  // Call when a running sequence has released its pages: it waits again, unless it is paused.
  void Preempt(Sequence& seq);

  // The head of the queue of waiting sequences; null if it is empty.
  Sequence* first() const { return waiting_.empty() ? nullptr : waiting_.begin()->second; }
  const std::vector<Sequence*>& running() const { return running_; }  // by rank
  // True if each source page of the copies belongs to a running sequence.
  bool HasSourcesOf(const std::vector<StepPlan::PageCopy>& copies) const;
  int num_running() const { return static_cast<int>(running_.size()); }
  int num_reserved_seqs() const;  // reserved for running sequences and their future forks
  int num_waiting() const { return static_cast<int>(waiting_.size()); }
  bool empty() const { return by_id_.empty(); }

  // The head of the queue was not admitted. Running sequences only grow, so retry only when the
  // head changes or a running sequence leaves.
  void RefuseFirst() { first_is_refused_ = true; }
  // A running sequence released something other than a page: retry the head of the queue.
  void RetryFirst() { first_is_refused_ = false; }
  bool first_is_refused() const { return first_is_refused_; }

 private:
  void Leave(Sequence& seq);

  std::unordered_map<int64_t, std::unique_ptr<Sequence>> by_id_;
  std::map<Sequence::Rank, Sequence*> waiting_;
  std::vector<Sequence*> running_;
  bool first_is_refused_ = false;
};

}  // namespace kuiper
