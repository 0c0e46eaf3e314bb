// The worker threads of the CPU backend: one pool per Ops, used by every kernel. A step issues
// hundreds of Run calls that each last microseconds, so workers spin between them and park on a
// futex only when nothing came for about two milliseconds: an idle chat burns no CPU. Knows nothing
// about kernels, which divide their work into shares of the threads. Other programs run, too: no
// product waits for a worker that the system does not let run.
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
  // The calling thread is one of the num_threads; 0 means DefaultThreads(). The pool is smaller
  // when the system refuses to start that many.
  explicit ThreadPool(int num_threads = 0);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  // Physical cores this process may use: affinity mask, SMT siblings counted once, CPU quota of the
  // control group (containers) rounded up. At least 1.
  static int DefaultThreads();

  int size() const { return num_threads_; }

  // Divides items [0, count) for the next Run, whose threads take up to `step` of them at a time.
  WorkShares& Divide(int64_t count, int64_t step = 1) {
    shares_.Divide(count, step, num_threads_);
    return shares_;
  }

  // Calls f(thread) on the calling thread, as thread 0, and on every other thread that arrives
  // before that call has returned; then waits for those inside. A thread that the system keeps from
  // running delays nobody, so f must claim its work from what Divide gave: no call but the caller's
  // is certain. Each index in [0, size()) is given at most once, for scratch memory. What the calls
  // wrote is visible afterwards. f must not throw or call Run; one caller at a time.
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

  // Calls f(index, count) once for each index in [0, count), count = size(), each on a thread of
  // its own: for work that is divided beforehand. Waits until the system has let every thread run.
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
  // Waits until the epoch differs from `seen` and returns it: spin, yield, park.
  uint32_t AwaitEpoch(uint32_t seen);
  // Counts this thread among those inside, unless the gate of that epoch is closed.
  bool Enter(uint32_t epoch);

  int num_threads_;
  int spin_pauses_ = 0;  // before a waiting thread starts to yield
  std::vector<std::thread> threads_;
  WorkShares shares_;

  // Read by all while spinning; apart from what workers write.
  alignas(64) std::atomic<uint32_t> epoch_{0};
  Task task_ = nullptr;
  void* argument_ = nullptr;
  std::atomic<bool> stop_{false};
  // The epoch (upper half), whether its gate is closed (bit 31), and how many workers are inside.
  static constexpr uint64_t kClosed = uint64_t{1} << 31;
  static constexpr uint64_t kInside = kClosed - 1;
  alignas(64) std::atomic<uint64_t> gate_{kClosed};
  std::atomic<int> parked_{0};
};

}  // namespace kuiper::cpu
