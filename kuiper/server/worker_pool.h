// A few threads for what takes too long for the thread of the network: reading large bodies, chat
// templates, tokenizing, decoding pictures. Jobs begin in the order in which they come.
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
  // The weights of the jobs that run at one time are at most `capacity` together.
  explicit WorkerPool(int num_threads, int64_t capacity = INT64_MAX);
  // Jobs that have not begun are forgotten.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;

  // Returns the job's number. It begins when it is its turn and its weight, which is not above the
  // capacity, has room.
  int64_t Add(std::function<void()> job, int64_t weight = 0);
  // The job leaves the queue. False: it has begun, or ended.
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
  int64_t room_;  // for the weights of more jobs
  int64_t next_number_ = 1;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace kuiper
