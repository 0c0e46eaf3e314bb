#include "kuiper/kernels/cpu/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <set>
#include <string>
#include <system_error>

#ifdef __linux__
#include <sched.h>
#endif

#include "kuiper/base/check.h"

namespace kuiper::cpu {
namespace {

// A parked worker takes up to half a millisecond to wake on a virtual machine whose CPU halted;
// waiting this long before parking spans the gaps between the steps of one generation.
constexpr std::chrono::microseconds kSpinTime(2000);

inline void CpuPause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__) || defined(__arm__)
  asm volatile("yield");
#endif
}

#ifdef __linux__
std::string FirstLine(const std::string& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  return line;
}

// CPUs of the affinity mask, SMT siblings counted once: a second thread on a core adds nothing to a
// kernel that already saturates the core's FMA units or the memory.
int AffineCores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) {
    return static_cast<int>(std::thread::hardware_concurrency());
  }
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    std::string siblings = FirstLine("/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                                     "/topology/thread_siblings_list");
    cores.insert(siblings.empty() ? "cpu" + std::to_string(cpu) : siblings);
  }
  return static_cast<int>(cores.size());
}

// CPUs' worth of time per period from "quota period" (cgroup v2 cpu.max), infinity when unlimited.
double ParseQuota(const std::string& quota, const std::string& period) {
  char* end = nullptr;
  const double q = std::strtod(quota.c_str(), &end);
  if (end == quota.c_str() || q <= 0) return HUGE_VAL;  // "max", -1 or no such file
  const double p = std::strtod(period.c_str(), nullptr);
  return p > 0 ? q / p : HUGE_VAL;
}

// The tightest CPU quota from this process's control group up to the root.
double CgroupCpus() {
  double cpus = HUGE_VAL;
  std::ifstream in("/proc/self/cgroup");
  for (std::string line;
       std::getline(in, line);) {  // "0::/path" (v2) or "4:cpu,cpuacct:/path" (v1)
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    std::string controllers = line.substr(first, second - first + 1);
    controllers.front() = controllers.back() = ',';
    const bool v2 = controllers == ",,";
    if (!v2 && controllers.find(",cpu,") == std::string::npos) continue;
    const std::string root = v2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
    // Inside a container the path may be the host's; its missing levels are skipped, the root
    // counts.
    for (std::string path = line.substr(second + 1);;) {
      const std::string dir = root + (path == "/" ? "" : path);
      if (v2) {
        const std::string max = FirstLine(dir + "/cpu.max");
        const size_t space = max.find(' ');
        if (space != std::string::npos) {
          cpus = std::min(cpus, ParseQuota(max.substr(0, space), max.substr(space + 1)));
        }
      } else {
        cpus = std::min(cpus, ParseQuota(FirstLine(dir + "/cpu.cfs_quota_us"),
                                         FirstLine(dir + "/cpu.cfs_period_us")));
      }
      const size_t slash = path.rfind('/');
      if (path.empty() || path == "/" || slash == std::string::npos) break;
      path = slash == 0 ? "/" : path.substr(0, slash);
    }
  }
  return cpus;
}
#endif

}  // namespace

int ThreadPool::DefaultThreads() {
#ifdef __linux__
  const double cpus = std::min<double>(AffineCores(), std::ceil(CgroupCpus()));
  return std::max(1, static_cast<int>(cpus));
#else
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
#endif
}

ThreadPool::ThreadPool(int num_threads)
    : num_threads_(num_threads > 0 ? num_threads : DefaultThreads()) {
  // With more threads than CPUs a spinning thread takes its CPU from one that has work.
  spin_pauses_ = num_threads_ <= DefaultThreads() ? 4000 : 50;
  threads_.reserve(num_threads_ - 1);
  try {
    for (int i = 1; i < num_threads_; ++i) threads_.emplace_back([this, i] { Work(i); });
  } catch (const std::system_error&) {
    // The system's limit of threads is reached: the work is shared among those that exist.
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
  gate_.store(uint64_t{epoch} << 32, std::memory_order_release);  // open, and nobody is inside
  // The store and the load below, like their mirror images in AwaitEpoch, are sequentially
  // consistent: either a parking worker sees the new epoch or this thread sees the worker parked.
  epoch_.store(epoch, std::memory_order_seq_cst);
  if (parked_.load(std::memory_order_seq_cst) != 0) epoch_.notify_all();
  task(argument, 0);
  // All work is claimed: who has not entered by now has nothing to do here.
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
  // Yielding leaves the CPU to whoever can use it and costs nothing when nobody wants it.
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
    if (stop_.load(std::memory_order_relaxed)) return;  // written before the epoch that says so
    if (!Enter(epoch)) continue;
    task_(argument_, index);
    gate_.fetch_sub(1, std::memory_order_release);
  }
}

}  // namespace kuiper::cpu
