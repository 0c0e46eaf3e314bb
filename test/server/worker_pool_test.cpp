#include "kuiper/server/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>

#include "test/server/http_client.h"

namespace kuiper {
namespace {

using test::Eventually;

// Jobs that run until they are released.
struct Gate {
  std::promise<void> opened;
  std::shared_future<void> open = opened.get_future().share();
  std::atomic<int> num_running = 0, num_ended = 0;

  std::function<void()> Job() {
    return [this] {
      ++num_running;
      open.wait();
      ++num_ended;
    };
  }
};

TEST(WorkerPool, HeavyJobsWaitForRoom) {
  Gate first, second, light;
  WorkerPool pool(3, 10);
  pool.Add(first.Job(), 6);
  pool.Add(second.Job(), 6);
  pool.Add(light.Job(), 1);
  EXPECT_TRUE(Eventually([&] { return first.num_running == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_EQ(second.num_running, 0);
  EXPECT_EQ(light.num_running, 0) << "jobs begin in their order";
  first.opened.set_value();
  EXPECT_TRUE(Eventually([&] { return second.num_running == 1 && light.num_running == 1; }));
  second.opened.set_value();
  light.opened.set_value();
  EXPECT_TRUE(Eventually([&] { return second.num_ended == 1 && light.num_ended == 1; }));
}

TEST(WorkerPool, WhatHasNotBegunCanLeaveTheQueue) {
  Gate first, second, third;
  WorkerPool pool(2, 10);
  const int64_t begun = pool.Add(first.Job(), 6);
  EXPECT_TRUE(Eventually([&] { return first.num_running == 1; }));
  const auto kept = std::make_shared<int>(0);
  const int64_t waits = pool.Add([kept, job = second.Job()] { job(); }, 6);
  pool.Add(third.Job(), 4);
  EXPECT_FALSE(pool.Forget(begun));
  EXPECT_TRUE(pool.Forget(waits));
  EXPECT_FALSE(pool.Forget(waits));
  EXPECT_EQ(kept.use_count(), 1) << "what the job had is gone";
  EXPECT_TRUE(Eventually([&] { return third.num_running == 1; })) << "the next one is lighter";
  EXPECT_EQ(second.num_running, 0);
  first.opened.set_value();
  third.opened.set_value();
}

}  // namespace
}  // namespace kuiper
