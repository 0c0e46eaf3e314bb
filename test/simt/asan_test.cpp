// What AddressSanitizer detects in a broken kernel, with the kernel's line in its report. Built
// only with AddressSanitizer.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "emulator/sanitizer.h"
#include "test/simt/broken.h"
#include "test/simt/device_array.h"
#include "test/simt/schedules.h"

static_assert(kuiper::simt::kAsan);

namespace kuiper::simt_test {
namespace {

// `where`: the report's description of the address, and the kernel it names.
void ExpectReport(const std::function<void(bool fixed)>& kernel, const std::string& where) {
  ForEachSchedule([&] {
    kernel(true);
    EXPECT_DEATH(kernel(false), "AddressSanitizer: " + where);
  });
}

TEST(SimtAsan, ReadPastADeviceBuffer) {
  DeviceArray<float> in(100), out(1);
  ExpectReport([&](bool f) { ReadPastBuffer(out.data(), in.data(), 100, f); },
               "use-after-poison.*READ of size 4.*ReadPastBufferKernel.*broken.cu");
}

TEST(SimtAsan, WritePastADeviceBuffer) {
  DeviceArray<float> out(100);
  ExpectReport([&](bool f) { WritePastBuffer(out.data(), 100, f); },
               "use-after-poison.*WRITE of size 4.*WritePastBufferKernel.*broken.cu");
}

TEST(SimtAsan, ReadPastASharedVariable) {
  DeviceArray<float> out(32);
  ExpectReport([&](bool f) { ReadPastSharedVariable(out.data(), f); },
               "use-after-poison.*READ of size 4.*ReadPastSharedVariableKernel.*broken.cu");
}

TEST(SimtAsan, PastTheDynamicSharedMemoryOfTheLaunch) {
  DeviceArray<float> out(32);
  ExpectReport([&](bool f) { ReadPastDynamicShared(out.data(), f); },
               "use-after-poison.*WRITE of size 4.*ReadPastDynamicSharedKernel.*broken.cu");
}

TEST(SimtAsan, AsynchronousCopyFromPastABuffer) {
  DeviceArray<float> in(100), out(26);
  ExpectReport([&](bool f) { CopyAsyncPastBuffer(out.data(), in.data(), 100, f); },
               "use-after-poison.*CopyAsyncPastBufferKernel.*broken.cu");
}

TEST(SimtAsan, UseOfAFreedBuffer) {
  DeviceArray<float> out(1);
  float* dangling = nullptr;
  {
    DeviceArray<float> in(100);
    dangling = in.data();
    ReadPastBuffer(out.data(), dangling, 100, true);
  }
  EXPECT_DEATH(ReadPastBuffer(out.data(), dangling, 100, true),
               "AddressSanitizer: heap-use-after-free.*ReadPastBufferKernel.*broken.cu");
}

}  // namespace
}  // namespace kuiper::simt_test
