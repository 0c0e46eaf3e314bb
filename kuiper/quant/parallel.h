// Rows shared among threads, for work that takes long enough to start some.
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

namespace kuiper {

// Calls work(begin, end) for parts of [0, count), one per thread.
template <typename Work>
void ParallelRanges(int64_t count, int num_threads, const Work& work) {
  const int64_t parts = std::clamp<int64_t>(num_threads, 1, std::max<int64_t>(count, 1));
  std::vector<std::thread> threads;
  for (int64_t i = 1; i < parts; ++i) {
    threads.emplace_back([&, i] { work(count * i / parts, count * (i + 1) / parts); });
  }
  work(int64_t{0}, count / parts);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace kuiper
