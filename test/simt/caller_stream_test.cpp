// The operator API on a stream of the caller: what it enqueues, captures and refuses.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "emulator/runtime.h"
#include "test/ops/paged_attention_test_util.h"

namespace kuiper::test {
namespace {

using namespace simt::dialect;  // NOLINT(google-build-using-namespace): CUDA's are global

const Shape kShape{4, 2, 64};
const std::vector<Seq> kSeqs = {{1, 1, 33}, {2, 5, 17}};

class CallerStreamTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  void TearDown() override {
    simt::CurrentPretence() = before_;
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
  }

  void BeginCapture() {
    ASSERT_TRUE(attention_.SetStream(stream_).ok());
    ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  }
  void EndCaptureAndReplay(const std::vector<float>& expected) {
    cudaGraph_t graph = nullptr;
    ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    cudaGraphExec_t exec = nullptr;
    ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
    ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    for (int replay = 0; replay < 2; ++replay) {
      call_.ClearOutput();
      ASSERT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
      ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
      EXPECT_TRUE(SameBits(call_.Output(), expected)) << "replay " << replay;
    }
    ASSERT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  }

  PagedAttention attention_ = MakeAttention({DeviceType::kSimt, 0}, {2, 4, 64, 64});
  Call call_{attention_, DType::kF16, DType::kF16, kShape, kSeqs, 16, Layout::kSeparateHeadMajor};
  cudaStream_t stream_ = nullptr;
  const simt::Pretence before_ = simt::CurrentPretence();
};

// The work is on the stream that was set, and no call waits for it.
TEST_F(CallerStreamTest, WorkGoesToTheStreamWithoutWaiting) {
  const std::vector<float> expected = call_.Run();
  call_.ClearOutput();
  ASSERT_TRUE(attention_.SetStream(stream_).ok());
  const simt::HostWaits before = simt::CurrentHostWaits();
  ASSERT_TRUE(attention_.Run(call_.args()).ok());
  const simt::HostWaits after = simt::CurrentHostWaits();
  EXPECT_EQ(after.syncs, before.syncs);
  EXPECT_EQ(after.events, before.events);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_TRUE(SameBits(call_.Output(), expected));
}

TEST_F(CallerStreamTest, TheCallerRecordsAndReplays) {
  const std::vector<float> expected = call_.Run();
  BeginCapture();
  ASSERT_TRUE(attention_.Run(call_.args()).ok());
  EndCaptureAndReplay(expected);
}

// Calls that wait are refused; the work captured before and after them stays complete.
TEST_F(CallerStreamTest, WaitingInsideACaptureIsAStatus) {
  const std::vector<float> expected = call_.Run();
  BeginCapture();
  const Status checked = attention_.CheckValues(call_.args());
  EXPECT_EQ(checked.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(checked.message(),
            "values cannot be checked: the stream is being captured, and nothing runs before the "
            "capture ends");
  EXPECT_EQ(checked.hint(), "call this before the capture begins, or after a replay");
  ASSERT_TRUE(attention_.Run(call_.args()).ok());
  const Status synced = attention_.Sync();
  EXPECT_EQ(synced.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(synced.message(),
            "the stream is being captured, and nothing runs before the capture ends");
  EndCaptureAndReplay(expected);
  EXPECT_TRUE(attention_.Sync().ok());
  EXPECT_TRUE(attention_.CheckValues(call_.args()).ok());
}

// Waiting is also refused during ComputeDevice::Capture.
TEST_F(CallerStreamTest, WaitingInsideARecordedStepIsAStatus) {
  Status synced;
  const auto graph = attention_.device().Capture([&] {
    EXPECT_TRUE(attention_.Run(call_.args()).ok());
    synced = attention_.Sync();
  });
  EXPECT_TRUE(graph.ok()) << graph.status().message();
  EXPECT_EQ(synced.code(), StatusCode::kInvalidArgument);
}

// Allocating and freeing memory do not affect a capture on another stream.
TEST_F(CallerStreamTest, ObjectsComeAndGoBesideACapture) {
  const std::vector<float> expected = call_.Run();
  auto going = std::make_unique<PagedAttention>(MakeAttention({DeviceType::kSimt, 0}));
  BeginCapture();
  ASSERT_TRUE(attention_.Run(call_.args()).ok());
  going.reset();
  const auto coming = PagedAttention::Create({DeviceType::kSimt, 0}, {1, 1, 64, 64});
  EXPECT_TRUE(coming.ok()) << coming.status().message();
  EndCaptureAndReplay(expected);
}

// A wrong page number may end the work of the device, but not the caller's program.
TEST_F(CallerStreamTest, AFaultIsAStatus) {
  auto lost = std::make_unique<PagedAttention>(MakeAttention({DeviceType::kSimt, 0}));
  ASSERT_TRUE(lost->Sync().ok());
  simt::CurrentPretence().launches_until_fault = 0;
  for (const Status& status : {lost->Sync(), lost->CheckValues(call_.args())}) {
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_NE(status.message().find("cannot wait for simt: cudaErrorLaunchFailure"),
              std::string::npos)
        << status.message();
  }
  EXPECT_EQ(lost->Run(call_.args()).code(), StatusCode::kInternal);
  EXPECT_EQ(lost->device().Allocate(1).status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(lost->device().AllocatePinned(1).status().code(), StatusCode::kUnavailable);
  EXPECT_FALSE(PagedAttention::Create({DeviceType::kSimt, 0}, {1, 1, 64, 64}).ok());
  lost.reset();
}

// A CUDA 12.2 driver cannot load the kernel inside the caller's capture; the program continues.
TEST_F(CallerStreamTest, ARefusedKernelIsAStatus) {
  simt::CurrentPretence().driver_version = 12020;  // before 12.3
  simt::UnloadKernels();
  BeginCapture();
  const Status refused = attention_.Run(call_.args());
  EXPECT_EQ(refused.code(), StatusCode::kInternal);
  EXPECT_NE(refused.message().find("cannot start a kernel or a copy: "), std::string::npos)
      << refused.message();
  cudaGraph_t graph = nullptr;
  EXPECT_NE(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  (void)cudaGetLastError();
  ASSERT_TRUE(attention_.Run(call_.args()).ok());
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
}

TEST(CallerStream, ACpuHasNone) {
  PagedAttention attention = MakeAttention({});
  const Status status = attention.SetStream(nullptr);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("has no streams"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace kuiper::test
