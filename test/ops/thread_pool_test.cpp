// ThreadPool: all work is done and visible, no thread waits for one that the system does not run,
// idle threads sleep, and more threads than CPUs work.
#include "kuiper/kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#ifdef __linux__
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "kuiper/base/check.h"

namespace kuiper::cpu {
namespace {

#ifdef __linux__
// True if the kernel reports that all threads of this process except the main one sleep.
bool OthersSleep() {
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(getpid())) continue;
    std::ifstream in(task.path() / "stat");
    const std::string stat{std::istreambuf_iterator<char>(in), {}};
    const size_t name_end = stat.rfind(')');  // "7 (name) S ..."
    if (name_end == std::string::npos || stat.compare(name_end, 3, ") S") != 0) return false;
  }
  return true;
}
// Returns when the workers are parked; if they never park, the test fails by its time limit.
void AwaitParking() {
  while (!OthersSleep()) std::this_thread::yield();
}
#endif

#ifdef __linux__
// Holds a thread of this process in a signal handler, like a system that runs other work instead.
class HeldThread {
 public:
  explicit HeldThread(pid_t thread) {
    KU_CHECK(pipe(held_) == 0 && pipe(released_) == 0, "pipe");
    struct sigaction action = {};
    action.sa_handler = [](int) {
      char byte = 0;
      if (write(held_[1], &byte, 1) != 1 || read(released_[0], &byte, 1) != 1) abort();
    };
    KU_CHECK(sigaction(SIGUSR1, &action, nullptr) == 0, "sigaction");
    KU_CHECK(syscall(SYS_tgkill, getpid(), thread, SIGUSR1) == 0, "tgkill");
    char byte = 0;
    KU_CHECK(read(held_[0], &byte, 1) == 1, "read");
  }
  ~HeldThread() {
    Release();
    for (const int* ends : {held_, released_}) {
      close(ends[0]);
      close(ends[1]);
    }
  }
  void Release() {
    const char byte = 0;
    if (!std::exchange(is_released_, true)) KU_CHECK(write(released_[1], &byte, 1) == 1, "write");
  }

 private:
  static int held_[2], released_[2];  // static, because handlers have no object
  bool is_released_ = false;
};
int HeldThread::held_[2], HeldThread::released_[2];

TEST(ThreadPool, DoesNotWaitForAThreadThatIsKeptFromEntering) {
  ThreadPool pool(3);
  std::vector<pid_t> threads(3);
  pool.RunOnEach([&](int index, int) { threads[index] = static_cast<pid_t>(syscall(SYS_gettid)); });
  HeldThread held(threads[1]);
  for (int run = 0; run < 100; ++run) {
    std::atomic<int> done{0};
    bool entered = false;
    WorkShares& shares = pool.Divide(50);
    pool.Run([&](int thread) {
      if (thread == 1) entered = true;
      while (!shares.Take(thread).empty()) ++done;
    });
    ASSERT_EQ(done, 50);
    ASSERT_FALSE(entered);
  }
  held.Release();
  int calls[3] = {};
  // The thread came back, for this run only.
  pool.RunOnEach([&](int index, int) { ++calls[index]; });
  for (int count : calls) EXPECT_EQ(count, 1);
}

TEST(ThreadPool, EndsWhileAThreadHasNotSeenTheLastRun) {
  std::optional<ThreadPool> pool(2);
  pid_t thread = 0;
  pool->RunOnEach([&](int index, int) {
    if (index == 1) thread = static_cast<pid_t>(syscall(SYS_gettid));
  });
  HeldThread held(thread);
  pool->Run([](int) {});
  std::thread end([&] { pool.reset(); });
  held.Release();
  end.join();
}
#endif

TEST(ThreadPool, SharesAllItemsAndPublishesTheirWrites) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.size(), threads);
    for (int count : {64, 5, 1, 0}) {
      std::vector<int> items(count);  // plain ints: Run must order the accesses
      for (int run = 1; run <= 500; ++run) {
        WorkShares& shares = pool.Divide(count, run % 4 + 1);
        std::atomic<int> inside[8] = {};
        pool.Run([&](int thread) {
          ASSERT_EQ(inside[thread].fetch_add(1), 0);  // no index twice
          for (WorkShares::Range r; !(r = shares.Take(thread)).empty();) {
            ASSERT_LE(r.end - r.begin, run % 4 + 1);
            for (int64_t i = r.begin; i < r.end; ++i) ++items[i];
          }
          ASSERT_EQ(shares.Take(thread).begin, count);
        });
        for (int times : items) ASSERT_EQ(times, run);
      }
    }
  }
}

TEST(WorkShares, AThreadBeginsWithItsPartAndThenHelpsTheNext) {
  WorkShares shares;
  shares.Divide(10, 2, 3);  // [0, 3), [3, 6), [6, 10)
  const auto take = [&](int thread) {
    const WorkShares::Range r = shares.Take(thread);
    return std::pair(r.begin, r.end);
  };
  using Pair = std::pair<int64_t, int64_t>;
  EXPECT_EQ(take(1), Pair(3, 5));
  EXPECT_EQ(take(1), Pair(5, 6));  // a share ends where the next one begins
  EXPECT_EQ(take(0), Pair(0, 2));
  EXPECT_EQ(take(1), Pair(6, 8));
  EXPECT_EQ(take(1), Pair(8, 10));
  EXPECT_EQ(take(1), Pair(2, 3));
  for (int thread : {0, 1, 2}) EXPECT_EQ(take(thread), Pair(10, 10));
}

TEST(ThreadPool, RunOnEachCallsEachIndexOnceAndPublishesItsWrites) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    std::vector<int> calls(threads, 0);
    for (int run = 1; run <= 100; ++run) {
      pool.RunOnEach([&](int index, int count) {
        ASSERT_EQ(count, threads);
        ++calls[index];
      });
      for (int count : calls) ASSERT_EQ(count, run);
    }
  }
}

#ifdef __linux__
TEST(ThreadPool, WakesParkedWorkers) {
  ThreadPool pool(3);
  std::atomic<int> calls{0};
  for (int run = 0; run < 20; ++run) {
    if (run % 2 == 0) AwaitParking();
    pool.RunOnEach([&](int, int) { ++calls; });
  }
  EXPECT_EQ(calls, 60);
}

TEST(ThreadPool, IdleWorkersSleep) {
  ThreadPool pool(4);
  pool.Run([](int) {});
  AwaitParking();
}
#endif

TEST(ThreadPool, DefaultIsWithinTheMachine) {
  EXPECT_GE(ThreadPool::DefaultThreads(), 1);
  EXPECT_LE(ThreadPool::DefaultThreads(),
            static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
}

}  // namespace
}  // namespace kuiper::cpu
