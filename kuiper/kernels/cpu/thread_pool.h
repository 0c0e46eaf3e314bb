// The worker threads of the CPU backend: one pool per Ops, used by every kernel. A step issues
// hundreds of Run calls that each last microseconds, so workers spin between them and park on a
// futex only when nothing came for about two milliseconds: an idle chat burns no CPU. Knows nothing
// about kernels; kernels share work among the threads through their own atomic counters.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

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

  // Calls f(thread_index) once for each index in [0, size()), on that many threads, and returns
  // when all have returned. What they wrote is visible afterwards. f must not throw or call Run;
  // one caller at a time.
  template <typename F>
  void Run(F&& f) {
    using Function = std::remove_reference_t<F>;
    if (num_threads_ == 1) {
      f(0);
      return;
    }
    const void* argument = std::addressof(f);
    Dispatch([](void* p, int index) { (*static_cast<Function*>(p))(index); },
             const_cast<void*>(argument));
  }

 private:
  using Task = void (*)(void* argument, int index);

  void Dispatch(Task task, void* argument);
  void Work(int index);
  // Waits until the epoch differs from `seen`: spin, yield, park.
  void AwaitEpoch(uint32_t seen);

  int num_threads_;
  int spin_pauses_ = 0;  // before a waiting thread starts to yield
  std::vector<std::thread> threads_;

  // Read by all while spinning; apart from what workers write.
  alignas(64) std::atomic<uint32_t> epoch_{0};
  Task task_ = nullptr;
  void* argument_ = nullptr;
  bool stop_ = false;
  alignas(64) std::atomic<int> running_{0};
  std::atomic<int> parked_{0};
};

}  // namespace kuiper::cpu
