// ThreadPool: every index once, results visible, idle threads sleep, more threads than CPUs work.
#include "kuiper/kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

namespace kuiper {
namespace {

using namespace std::chrono_literals;

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

TEST(ThreadPool, WakesParkedWorkers) {
  ThreadPool pool(3);
  std::atomic<int> calls{0};
  for (int run = 0; run < 20; ++run) {
    std::this_thread::sleep_for(run % 2 == 0 ? 8ms : 100us);
    pool.Run([&](int) { ++calls; });
  }
  EXPECT_EQ(calls, 60);
}

TEST(ThreadPool, IdleWorkersUseNoCpu) {
  ThreadPool pool(4);
  pool.Run([](int) {});
  std::this_thread::sleep_for(100ms);        // every worker has parked
  const std::clock_t before = std::clock();  // CPU time of the whole process
  std::this_thread::sleep_for(300ms);
  EXPECT_LT(std::clock() - before, CLOCKS_PER_SEC / 20);
}

TEST(ThreadPool, DefaultIsWithinTheMachine) {
  EXPECT_GE(ThreadPool::DefaultThreads(), 1);
  EXPECT_LE(ThreadPool::DefaultThreads(),
            static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
}

}  // namespace
}  // namespace kuiper
