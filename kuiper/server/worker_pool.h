// A thread pool for work that would block the network thread: parsing large bodies, chat templates,
// tokenizing, decoding images. Jobs begin in the order in which they were added.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kuiper {

class WorkerPool {
 public:
  // The sum of the running jobs' weights is at most `capacity`.
  explicit WorkerPool(int num_threads, int64_t capacity = INT64_MAX);
  // Drops the jobs that have not begun; waits for the others.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;

  // Returns the job's number. The job begins when it is first in the queue and its weight fits.
  // `weight` must not exceed the capacity.
  int64_t Add(std::function<void()> job, int64_t weight = 0);
  // Removes the job from the queue. Returns false if it has begun or ended.
  bool Forget(int64_t job);

 private:
  struct Job {
    int64_t number = 0, weight = 0;
    std::function<void()> run;
  };
  bool CanBegin() const { return !jobs_.empty() && jobs_.front().weight <= room_; }
  void Work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Job> jobs_;
  int64_t room_;  // capacity minus the weights of running jobs
  int64_t next_number_ = 1;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace kuiper
