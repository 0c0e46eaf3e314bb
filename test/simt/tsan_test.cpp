// What ThreadSanitizer detects in a broken kernel: races that no schedule shows in the results.
// Built only with ThreadSanitizer. Repaired kernels must be clean; a report ends the process.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "emulator/sanitizer.h"
#include "test/simt/broken.h"
#include "test/simt/device_array.h"
#include "test/simt/schedules.h"
#include "test/simt/wrappers.h"

static_assert(kuiper::simt::kTsan);

extern "C" const char* __tsan_default_options() {
  return "halt_on_error=1:report_bugs=1:exitcode=66";
}

namespace kuiper::simt_test {
namespace {

// ThreadSanitizer stops checking in a forked child, so a death test must be a separate process.
class FreshProcesses : public testing::Environment {
 public:
  void SetUp() override { testing::GTEST_FLAG(death_test_style) = "threadsafe"; }
};
[[maybe_unused]] testing::Environment* const environment =
    testing::AddGlobalTestEnvironment(new FreshProcesses);

void ExpectRace(const std::function<void(float* out, const float* in, bool fixed)>& kernel,
                const std::string& name) {
  ForEachSchedule([&] {
    DeviceArray<float> in(256), out(256);
    for (size_t i = 0; i < 256; ++i) in[i] = static_cast<float>(i);
    kernel(out.data(), in.data(), true);
    EXPECT_DEATH(kernel(out.data(), in.data(), false),
                 "ThreadSanitizer: data race.*" + name + ".*broken.cu");
  });
}

TEST(SimtTsan, MissingBarrier) {
  ExpectRace(ReverseWithoutBarrier, "ReverseKernel");
}

TEST(SimtTsan, MissingBarrierThatOneOrderHides) {
  ExpectRace(LeftNeighbourWithoutBarrier, "LeftNeighbourKernel");
}

TEST(SimtTsan, MissingBarrierBeforeReuse) {
  ExpectRace([](float* out, const float*, bool f) { ReuseWithoutBarrier(out, f); }, "ReuseKernel");
}

TEST(SimtTsan, MissingSyncWarp) {
  ExpectRace([](float* out, const float*, bool f) { ExchangeWithoutSyncWarp(out, f); },
             "ExchangeKernel");
}

TEST(SimtTsan, MissingSyncWarpBeforeLoadMatrix) {
  ExpectRace([](float* out, const float*, bool f) { LoadMatrixWithoutSyncWarp(out, f); },
             "LoadMatrixOrderKernel");
}

TEST(SimtTsan, AdditionWithoutAtomic) {
  ExpectRace([](float* out, const float*, bool f) { AddWithoutAtomic(out, f); }, "AddKernel");
}

TEST(SimtTsan, BlocksThatWriteTheSameAddress) {
  ExpectRace([](float* out, const float*, bool f) { BlocksWriteTheSame(out, f); }, "BlocksKernel");
}

TEST(SimtTsan, MissingBarrierAfterCopyWait) {
  ExpectRace(ReadOthersCopyWithoutBarrier, "OthersCopyKernel");
}

TEST(SimtTsan, CopyIntoATileThatIsStillRead) {
  ExpectRace(CopyIntoUsedTile, "CopyIntoUsedKernel");
}

TEST(SimtTsan, MissingFenceBeforeTheLastBlockReads) {
  ForEachSchedule([] {
    DeviceArray<float> in(1000), out(1), partial(7);
    DeviceArray<unsigned> ticket(std::vector<unsigned>(1, 0));
    for (size_t i = 0; i < 1000; ++i) in[i] = 1;
    const auto grid_sum = simt_gpu::GetWrappers().grid_sum;
    grid_sum(out.data(), partial.data(), ticket.data(), in.data(), 1000, 7, true);
    EXPECT_EQ(out[0], 1000.0f);
    EXPECT_DEATH(grid_sum(out.data(), partial.data(), ticket.data(), in.data(), 1000, 7, false),
                 "ThreadSanitizer: data race.*GridSumKernel.*wrappers.cu");
  });
}

}  // namespace
}  // namespace kuiper::simt_test
