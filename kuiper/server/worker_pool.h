// A few threads for what takes too long for the thread of the network: reading large bodies, chat
// templates, tokenizing. Jobs begin in the order in which they come.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kuiper {

class WorkerPool {
 public:
  explicit WorkerPool(int num_threads);
  // Jobs that have not begun are forgotten.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;

  void Add(std::function<void()> job);

 private:
  void Work();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> jobs_;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace kuiper
