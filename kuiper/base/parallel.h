// Shares rows among threads, for work that is long enough to be worth starting threads.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

#include "kuiper/base/process_limits.h"

namespace kuiper {

// Returns `wanted`, or if it is 0 one thread for each core that this process may use.
inline int NumThreads(int wanted) {
  return wanted > 0 ? wanted : UsableCores();
}

// Calls work(begin, end) for parts of [0, count), one per thread. The calling thread also takes the
// parts for which the system starts no thread. work must not throw.
template <typename Work>
void ParallelRanges(int64_t count, int num_threads, const Work& work) {
  const int64_t parts = std::clamp<int64_t>(num_threads, 1, std::max<int64_t>(count, 1));
  std::vector<std::thread> threads;
  threads.reserve(static_cast<size_t>(parts));
  int64_t started = 1;
  try {
    for (; started < parts; ++started) {
      threads.emplace_back(
          [&work, count, parts, i = started] { work(count * i / parts, count * (i + 1) / parts); });
    }
  } catch (const std::system_error&) {
    work(count * started / parts, count);
  }
  work(int64_t{0}, count / parts);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace kuiper
