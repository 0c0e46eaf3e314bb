#include "kuiper/kernels/cpu/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <system_error>

#include "kuiper/base/check.h"
#include "kuiper/base/process_limits.h"

namespace kuiper::cpu {
namespace {

// On a virtual machine whose CPU has halted, a parked worker takes up to half a millisecond to
// wake. Spinning this long before parking covers the gaps between the steps of one generation.
constexpr std::chrono::microseconds kSpinTime(2000);

inline void CpuPause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
  asm volatile("yield");
#endif
}

}  // namespace

int ThreadPool::DefaultThreads() {
  return UsableCores();
}

ThreadPool::ThreadPool(int num_threads)
    : num_threads_(num_threads > 0 ? num_threads : DefaultThreads()) {
  // With more threads than CPUs, a spinning thread takes its CPU from a thread that has work.
  spin_pauses_ = num_threads_ <= DefaultThreads() ? 4000 : 50;
  threads_.reserve(num_threads_ - 1);
  try {
    for (int i = 1; i < num_threads_; ++i) threads_.emplace_back([this, i] { Work(i); });
  } catch (const std::system_error&) {
    // The system's limit of threads is reached: share the work among the threads that exist.
    num_threads_ = static_cast<int>(threads_.size()) + 1;
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  epoch_.fetch_add(1, std::memory_order_seq_cst);
  epoch_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::Dispatch(Task task, void* argument) {
  KU_CHECK((gate_.load(std::memory_order_relaxed) & kClosed) != 0, "nested ThreadPool::Run");
  task_ = task;
  argument_ = argument;
  const uint32_t epoch = epoch_.load(std::memory_order_relaxed) + 1;
  gate_.store(uint64_t{epoch} << 32, std::memory_order_release);  // open, with no worker inside
  // The store and the load below, like their mirror images in AwaitEpoch, are sequentially
  // consistent: either a parking worker sees the new epoch or this thread sees the worker parked.
  epoch_.store(epoch, std::memory_order_seq_cst);
  if (parked_.load(std::memory_order_seq_cst) != 0) epoch_.notify_all();
  task(argument, 0);
  // All work is claimed: workers that have not entered by now are not needed.
  gate_.fetch_or(kClosed, std::memory_order_relaxed);
  for (int spins = 0; (gate_.load(std::memory_order_acquire) & kInside) != 0; ++spins) {
    if (spins < spin_pauses_) {
      CpuPause();
    } else {
      std::this_thread::yield();
    }
  }
}

uint32_t ThreadPool::AwaitEpoch(uint32_t seen) {
  uint32_t epoch = seen;
  const auto changed = [&] {
    epoch = epoch_.load(std::memory_order_acquire);
    return epoch != seen;
  };
  for (int spins = 0; spins < spin_pauses_; ++spins) {
    if (changed()) return epoch;
    CpuPause();
  }
  // Yielding lets other threads run and costs nothing if none is waiting for a CPU.
  const auto deadline = std::chrono::steady_clock::now() + kSpinTime;
  while (std::chrono::steady_clock::now() < deadline) {
    for (int i = 0; i < 16; ++i) {
      if (changed()) return epoch;
      CpuPause();
    }
    std::this_thread::yield();
  }
  parked_.fetch_add(1, std::memory_order_seq_cst);
  while ((epoch = epoch_.load(std::memory_order_seq_cst)) == seen) {
    epoch_.wait(seen, std::memory_order_acquire);
  }
  parked_.fetch_sub(1, std::memory_order_relaxed);
  return epoch;
}

bool ThreadPool::Enter(uint32_t epoch) {
  uint64_t gate = gate_.load(std::memory_order_relaxed);
  while (gate >> 32 == epoch && (gate & kClosed) == 0) {
    if (gate_.compare_exchange_weak(gate, gate + 1, std::memory_order_acquire)) return true;
  }
  return false;
}

void ThreadPool::Work(int index) {
  for (uint32_t epoch = 0;;) {
    epoch = AwaitEpoch(epoch);
    if (stop_.load(std::memory_order_relaxed)) return;  // set before the epoch changes
    if (!Enter(epoch)) continue;
    task_(argument_, index);
    gate_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace kuiper::cpu
