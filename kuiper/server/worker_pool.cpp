#include "kuiper/server/worker_pool.h"

#include <algorithm>
#include <utility>

namespace kuiper {

WorkerPool::WorkerPool(int num_threads, int64_t capacity) : room_(capacity) {
  for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { Work(); });
}

WorkerPool::~WorkerPool() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

int64_t WorkerPool::Add(std::function<void()> job, int64_t weight) {
  int64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = next_number_++;
    jobs_.push_back({number, weight, std::move(job)});
  }
  wake_.notify_one();
  return number;
}

bool WorkerPool::Forget(int64_t job) {
  Job forgotten;  // destroyed after the lock is released
  {
    const std::lock_guard lock(mutex_);
    const auto place = std::find_if(jobs_.begin(), jobs_.end(),
                                    [job](const Job& other) { return other.number == job; });
    if (place == jobs_.end()) return false;
    forgotten = std::move(*place);
    jobs_.erase(place);
  }
  wake_.notify_all();  // the next job may be lighter
  return true;
}

void WorkerPool::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return stopped_ || CanBegin(); });
    if (stopped_) return;
    Job job = std::move(jobs_.front());
    jobs_.pop_front();
    room_ -= job.weight;
    lock.unlock();
    wake_.notify_one();  // another job may fit
    job.run();
    job.run = nullptr;
    lock.lock();
    room_ += job.weight;
    wake_.notify_all();
  }
}

}  // namespace kuiper
