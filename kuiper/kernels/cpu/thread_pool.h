// The worker threads of the CPU backend: one pool per Ops, used by every kernel. An engine step
// issues hundreds of Run calls that last microseconds each, so workers spin between them. They park
// on a futex only after about two idle milliseconds, so that an idle chat uses no CPU. The pool
// does not depend on the kernels, which divide their work into shares of the threads. Since other
// programs run, too, no product waits for a worker that the system does not schedule.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "kuiper/kernels/cpu/work_shares.h"

namespace kuiper::cpu {

class ThreadPool {
 public:
  // num_threads includes the calling thread; 0 means DefaultThreads(). The pool is smaller if the
  // system refuses to start that many threads.
  explicit ThreadPool(int num_threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Returns the physical cores this process may use, at least 1: affinity mask, SMT siblings
  // counted once, CPU quota of the control group (containers) rounded up.
  static int DefaultThreads();

  int size() const { return num_threads_; }

  // Divides items [0, count) for the next Run, whose threads claim up to `step` items at a time.
  WorkShares& Divide(int64_t count, int64_t step = 1) {
    shares_.Divide(count, step, num_threads_);
    return shares_;
  }

  // Calls f(thread) on the calling thread, as thread 0, and on every worker that arrives before
  // that call has returned; then waits for the workers inside f. A worker that the system does not
  // schedule delays no other thread. Only the call on thread 0 is certain, so f must claim its work
  // from the result of Divide. Each index in [0, size()) is passed at most once, so it can select
  // scratch memory. Writes of the calls are visible afterwards. f must not throw or call Run; only
  // one thread may call Run at a time.
  template <typename F>
  void Run(F&& f) {
    using Function = std::remove_reference_t<F>;
    if (num_threads_ == 1) {
      f(0);
      return;
    }
    const void* argument = std::addressof(f);
    Dispatch([](void* p, int thread) { (*static_cast<Function*>(p))(thread); },
             const_cast<void*>(argument));
  }

  // Calls f(begin, end, thread) for ranges of up to `step` items that cover [0, count).
  template <typename F>
  void RunRanges(int64_t count, int64_t step, const F& f) {
    WorkShares& shares = Divide(count, step);
    Run([&](int thread) {
      for (WorkShares::Range r; !(r = shares.Take(thread)).empty();) f(r.begin, r.end, thread);
    });
  }

  // Calls f(index, count) once for each index in [0, count), count = size(), each on its own
  // thread: for work that is divided beforehand. Waits until every thread has run.
  template <typename F>
  void RunOnEach(F&& f) {
    std::atomic<int> missing{num_threads_ - 1};
    Run([&](int thread) {
      f(thread, num_threads_);
      if (thread != 0) {
        missing.fetch_sub(1, std::memory_order_relaxed);
        return;
      }
      while (missing.load(std::memory_order_relaxed) != 0) std::this_thread::yield();
    });
  }

 private:
  using Task = void (*)(void* argument, int index);

  void Dispatch(Task task, void* argument);
  void Work(int index);
  // Waits until the epoch differs from `seen` and returns it. First spins, then yields, then parks.
  uint32_t AwaitEpoch(uint32_t seen);
  // Counts this thread as inside and returns true, unless the gate of that epoch is closed.
  bool Enter(uint32_t epoch);

  int num_threads_;
  int spin_pauses_ = 0;  // pauses before a waiting thread starts to yield
  std::vector<std::thread> threads_;
  WorkShares shares_;

  // Read by all threads while spinning; on another cache line than the members that workers write.
  alignas(64) std::atomic<uint32_t> epoch_{0};
  Task task_ = nullptr;
  void* argument_ = nullptr;
  std::atomic<bool> stop_{false};
  // The epoch (upper half), whether its gate is closed (bit 31), and the number of workers inside.
  static constexpr uint64_t kClosed = uint64_t{1} << 31;
  static constexpr uint64_t kInside = kClosed - 1;
  alignas(64) std::atomic<uint64_t> gate_{kClosed};
  std::atomic<int> parked_{0};
};

}  // namespace kuiper::cpu
