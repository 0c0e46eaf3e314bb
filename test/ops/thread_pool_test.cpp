// ThreadPool: every index once, results visible, idle threads sleep, more threads than CPUs work.
#include "kuiper/kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#ifdef __linux__
#include <unistd.h>
#endif

namespace kuiper::cpu {
namespace {

#ifdef __linux__
// Whether the kernel says that all threads of this process but the main one sleep.
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
// Ends when the workers have parked; those that never do fail the test by its time limit.
void AwaitParking() {
  while (!OthersSleep()) std::this_thread::yield();
}
#endif

TEST(ThreadPool, CallsEachIndexOnceAndPublishesItsWrites) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.size(), threads);
    std::vector<int> calls(threads, 0);  // plain ints: Run must order the accesses
    for (int run = 1; run <= 2000; ++run) {
      pool.Run([&](int index) { ++calls[index]; });
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
    pool.Run([&](int) { ++calls; });
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
