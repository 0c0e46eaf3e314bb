// What every build detects in a broken kernel. Broken rules end the process with a report, and
// results are wrong under at least one schedule. The same kernels, repaired, are right under all
// schedules.
#include "test/simt/broken.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <vector>

#include "emulator/machine.h"
#include "emulator/sanitizer.h"
#include "test/simt/device_array.h"
#include "test/simt/schedules.h"

namespace kuiper::simt_test {
namespace {

constexpr size_t kSize = 256;

struct Buffers {
  DeviceArray<float> in{kSize}, out{kSize};
  Buffers() {
    for (size_t i = 0; i < kSize; ++i) {
      in[i] = static_cast<float>(i);
      out[i] = -1;
    }
  }
};

using Kernel = std::function<void(Buffers&, bool fixed)>;
using Expected = std::function<float(size_t i)>;

bool IsRight(const Kernel& kernel, bool fixed, size_t n, const Expected& expected) {
  Buffers b;
  kernel(b, fixed);
  for (size_t i = 0; i < n; ++i)
    if (!(b.out[i] == expected(i))) return false;
  return true;
}

// The mistake changes the result under exactly the named schedules; the repaired kernel is right
// under all.
void ExpectWrong(std::vector<simt::Schedule> schedules, const Kernel& kernel, size_t n,
                 const Expected& expected) {
  ForEachSchedule([&] {
    EXPECT_TRUE(IsRight(kernel, true, n, expected));
    if (simt::kTsan) return;  // ends the process at the race itself
    bool wrong = false;
    for (const simt::Schedule s : schedules) wrong |= s == simt::CurrentOptions().schedule;
    EXPECT_EQ(!IsRight(kernel, false, n, expected), wrong);
  });
}

void ExpectReport(const Kernel& kernel, const char* report) {
  ForEachSchedule([&] {
    Buffers b;
    kernel(b, true);
    EXPECT_DEATH(kernel(b, false), report);
  });
}

const std::vector<simt::Schedule> kAll = {simt::Schedule::kInOrder, simt::Schedule::kReversed,
                                          simt::Schedule::kShuffled};
const std::vector<simt::Schedule> kLate = {simt::Schedule::kInOrder, simt::Schedule::kShuffled};
const std::vector<simt::Schedule> kNotInOrder = {simt::Schedule::kReversed,
                                                 simt::Schedule::kShuffled};

TEST(SimtBroken, MissingBarrierGivesWrongResults) {
  ExpectWrong(
      kAll, [](Buffers& b, bool f) { ReverseWithoutBarrier(b.out.data(), b.in.data(), f); }, kSize,
      [](size_t i) { return static_cast<float>(255 - i); });
}

TEST(SimtBroken, MissingBarrierThatAscendingOrderHides) {
  ExpectWrong(
      kNotInOrder,
      [](Buffers& b, bool f) { LeftNeighbourWithoutBarrier(b.out.data(), b.in.data(), f); }, kSize,
      [](size_t i) { return static_cast<float>(i == 0 ? 0 : i - 1); });
}

TEST(SimtBroken, MissingBarrierBeforeReuse) {
  ExpectWrong(
      kAll, [](Buffers& b, bool f) { ReuseWithoutBarrier(b.out.data(), f); }, 128,
      [](size_t i) { return 2.0f * static_cast<float>(i + (i + 64) % 128); });
}

TEST(SimtBroken, MissingSyncWarp) {
  ExpectWrong(
      kAll, [](Buffers& b, bool f) { ExchangeWithoutSyncWarp(b.out.data(), f); }, 32,
      [](size_t i) { return static_cast<float>(i ^ 1); });
}

TEST(SimtBroken, MissingCopyWaitReadsNaN) {
  ExpectWrong(
      kLate, [](Buffers& b, bool f) { ReadWithoutCopyWait(b.out.data(), b.in.data(), f); }, 128,
      [](size_t i) { return static_cast<float>(i); });
}

TEST(SimtBroken, MissingBarrierAfterCopyWait) {
  ExpectWrong(
      kAll, [](Buffers& b, bool f) { ReadOthersCopyWithoutBarrier(b.out.data(), b.in.data(), f); },
      128, [](size_t i) { return static_cast<float>((i + 4) % 128); });
}

TEST(SimtBroken, CopyIntoATileThatIsStillRead) {
  ExpectWrong(
      kAll, [](Buffers& b, bool f) { CopyIntoUsedTile(b.out.data(), b.in.data(), f); }, 128,
      [](size_t i) { return static_cast<float>(127 - i); });
}

TEST(SimtBroken, UninitialisedSharedMemoryIsNaN) {
  ForEachSchedule([] {
    Buffers b;
    ReadUninitialisedShared(b.out.data(), true);
    EXPECT_EQ(b.out[31], 1.0f);
    ReadUninitialisedShared(b.out.data(), false);
    EXPECT_TRUE(std::isnan(b.out[31]));
    EXPECT_EQ(b.out[30], 1.0f);
  });
}

TEST(SimtBroken, UninitialisedDeviceMemoryIsNaN) {
  DeviceArray<float> fresh(3);
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(std::isnan(fresh[i]));
}

TEST(SimtBroken, DivergentBarrierNamesWhoWaitsWhere) {
  ExpectReport(
      [](Buffers& b, bool f) { DivergentBarrier(b.out.data(), f); },
      "deadlock in block \\(0,0,0\\):.*16 x __s[a-z_]+ at [^ ]*broken.cu:[0-9]+.*16 x __s");
}

TEST(SimtBroken, BarriersOnTwoLinesDoNotMeet) {
  ExpectReport([](Buffers& b, bool f) { BarriersOnTwoLines(b.out.data(), f); },
               "meet at different barriers: __syncthreads at [^ ]*broken.cu:[0-9]+ and __syncthr");
}

TEST(SimtBroken, DivergentShuffle) {
  ExpectReport([](Buffers& b, bool f) { DivergentShuffle(b.out.data(), f); },
               "lanes of one warp meet in different operations: __shfl_xor_sync at [^ ]*broken.cu");
}

TEST(SimtBroken, MaskWithoutTheCaller) {
  ExpectReport([](Buffers& b, bool f) { ShuffleWithForeignMask(b.out.data(), f); },
               "mask does not name the calling lane: __shfl_sync at [^ ]*broken.cu:[0-9]+ .thread");
}

TEST(SimtBroken, LoadMatrixNeedsAlignedRows) {
  ExpectReport([](Buffers& b, bool f) { LoadMatrixMisaligned(b.out.data(), f); },
               "misaligned shared memory address: LoadMatrix at [^ ]*broken.cu");
}

TEST(SimtBroken, LoadMatrixNeedsSharedMemory) {
  ExpectReport([](Buffers& b, bool f) { LoadMatrixFromGlobal(b.out.data(), b.in.data(), f); },
               "not an address in shared memory: LoadMatrix at [^ ]*broken.cu");
}

TEST(SimtBroken, WritePastABufferShowsWhenItIsFreed) {
  if (simt::kAsan) GTEST_SKIP() << "AddressSanitizer ends the process at the write itself";
  WritePastBuffer(DeviceArray<float>(100).data(), 100, true);
  EXPECT_DEATH(WritePastBuffer(DeviceArray<float>(100).data(), 100, false),
               "write past the end of a buffer .buffer .* of 400 bytes");
}

}  // namespace
}  // namespace kuiper::simt_test
