// All sequences of a scheduler: who waits, in which order, and who runs. It knows no pages and no
// plans.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "kuiper/engine/sequence.h"

namespace kuiper {

class SequenceLine {
 public:
  // Takes a sequence in, which neither waits nor runs yet.
  Sequence& Add(std::unique_ptr<Sequence> seq);
  Sequence* Find(int64_t id) const;
  // Null: there is none with this id.
  std::unique_ptr<Sequence> Remove(int64_t id);

  // Calls f(Sequence&, entry) for the entries of the plan whose sequences are here.
  template <typename F>
  void ForSequences(const StepPlan& plan, const F& f) const {
    size_t next = 0;
    for (const StepPlan::Entry& entry : plan.entries) {
      // Most entries stand as those who run do.
      const bool is_next = next < running_.size() && running_[next]->id == entry.sequence;
      Sequence* seq = is_next ? running_[next++] : Find(entry.sequence);
      if (seq != nullptr) f(*seq, entry);
    }
  }

  // The sequence waits, or runs, at its rank from here on.
  void Wait(Sequence& seq);
  void Run(Sequence& seq);
  // One that runs gave its pages back: it waits again, unless it rests.
  void PutBack(Sequence& seq);

  // Who is first of those who wait; null: nobody.
  Sequence* first() const { return waiting_.empty() ? nullptr : waiting_.begin()->second; }
  const std::vector<Sequence*>& running() const { return running_; }  // by rank
  // Whether somebody who runs has each page that is copied.
  bool HasSourcesOf(const std::vector<StepPlan::PageCopy>& copies) const;
  int num_running() const { return static_cast<int>(running_.size()); }
  int num_seats() const;  // of all who run, with those of forks to come
  int num_waiting() const { return static_cast<int>(waiting_.size()); }
  bool empty() const { return by_id_.empty(); }

  // The first one was refused. Those who run only take more, so it need not be asked again before
  // somebody else is first, or somebody who runs leaves.
  void RefuseFirst() { first_is_refused_ = true; }
  // Who runs gave something back that is no page.
  void AskFirstAgain() { first_is_refused_ = false; }
  bool first_is_refused() const { return first_is_refused_; }

 private:
  void Leave(Sequence& seq);

  std::unordered_map<int64_t, std::unique_ptr<Sequence>> by_id_;
  std::map<Sequence::Rank, Sequence*> waiting_;
  std::vector<Sequence*> running_;
  bool first_is_refused_ = false;
};

}  // namespace kuiper
