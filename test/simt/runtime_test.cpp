// The host's side of the emulated device: what a wrong order of calls, a wrong pointer or a wrong
// shape leads to, and what a captured graph replays.
#include <gtest/gtest.h>

#include <cmath>
#include <thread>
#include <vector>

#include "kuiper/kernels/simt/dialect.h"

namespace kuiper::simt_test {
namespace {

__global__ void AddKernel(float* out, const float* in, const int* step, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) out[i] = in[i] + static_cast<float>(*step);
}

__global__ void EmptyKernel() {}

cudaError_t Add(float* out, const float* in, const int* step, int n, cudaStream_t stream) {
  return simt::LaunchKernel<AddKernel>({dim3((n + 63) / 64), dim3(64), 0}, stream, out, in, step,
                                       n);
}

class SimtRuntimeTest : public testing::Test {
 protected:
  static constexpr int kN = 100;
  static constexpr size_t kBytes = kN * sizeof(float);

  void SetUp() override {
    saved_ = simt::CurrentOptions();
    simt::CurrentOptions().eager_streams = false;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&device_, kBytes), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&step_, sizeof(int)), cudaSuccess);
    ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&pinned_), kBytes), cudaSuccess);
    for (int i = 0; i < kN; ++i) pinned_[i] = static_cast<float>(i);
    SetStep(1);
  }
  void TearDown() override {
    EXPECT_EQ(cudaStreamDestroy(stream_), cudaSuccess);
    EXPECT_EQ(cudaFree(device_), cudaSuccess);
    EXPECT_EQ(cudaFree(step_), cudaSuccess);
    EXPECT_EQ(cudaFreeHost(pinned_), cudaSuccess);
    cudaGetLastError();
    simt::CurrentOptions() = saved_;
  }
  void SetStep(int step) {
    ASSERT_EQ(cudaMemcpy(step_, &step, sizeof(int), cudaMemcpyHostToDevice), cudaSuccess);
  }

  simt::Options saved_;
  cudaStream_t stream_ = nullptr;
  float* device_ = nullptr;
  int* step_ = nullptr;
  float* pinned_ = nullptr;
};

TEST_F(SimtRuntimeTest, NothingIsThereBeforeTheHostWaits) {
  ASSERT_EQ(cudaMemcpyAsync(device_, pinned_, kBytes, cudaMemcpyHostToDevice, stream_),
            cudaSuccess);
  ASSERT_EQ(Add(device_, device_, step_, kN, stream_), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(pinned_, device_, kBytes, cudaMemcpyDeviceToHost, stream_),
            cudaSuccess);
  EXPECT_EQ(pinned_[7], 7);
  std::vector<float> early(kN);
  ASSERT_EQ(cudaMemcpy(early.data(), device_, kBytes, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_TRUE(std::isnan(early[7])) << "the default stream does not wait for a non-blocking one";
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(pinned_[7], 8);
}

TEST_F(SimtRuntimeTest, PinnedMemoryIsReadLateAndPageableMemoryAtOnce) {
  std::vector<float> pageable(kN, 5);
  ASSERT_EQ(cudaMemcpyAsync(device_, pinned_, kBytes, cudaMemcpyHostToDevice, stream_),
            cudaSuccess);
  pinned_[3] = -1;
  std::vector<float> got(kN);
  ASSERT_EQ(cudaMemcpyAsync(got.data(), device_, kBytes, cudaMemcpyDeviceToHost, stream_),
            cudaSuccess);
  EXPECT_EQ(got[3], -1);
  EXPECT_EQ(got[4], 4);
  ASSERT_EQ(cudaMemcpyAsync(device_, pageable.data(), kBytes, cudaMemcpyHostToDevice, stream_),
            cudaSuccess);
  pageable[3] = -2;
  ASSERT_EQ(cudaMemcpyAsync(got.data(), device_, kBytes, cudaMemcpyDeviceToHost, stream_),
            cudaSuccess);
  EXPECT_EQ(got[3], 5);
}

TEST_F(SimtRuntimeTest, EventsOrderStreams) {
  cudaStream_t second = nullptr;
  cudaEvent_t copied = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&second, cudaStreamNonBlocking), cudaSuccess);
  ASSERT_EQ(cudaEventCreateWithFlags(&copied, cudaEventDisableTiming), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(device_, pinned_, kBytes, cudaMemcpyHostToDevice, stream_),
            cudaSuccess);
  ASSERT_EQ(cudaEventRecord(copied, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamWaitEvent(second, copied), cudaSuccess);
  ASSERT_EQ(Add(device_, device_, step_, kN, second), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(second), cudaSuccess);
  std::vector<float> got(kN);
  ASSERT_EQ(cudaMemcpy(got.data(), device_, kBytes, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(got[9], 10);
  ASSERT_EQ(cudaEventRecord(copied, second), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(copied), cudaErrorNotReady);
  EXPECT_EQ(cudaEventQuery(copied), cudaSuccess) << "a host that polls gets there";
  ASSERT_EQ(cudaEventDestroy(copied), cudaSuccess);
  ASSERT_EQ(cudaStreamDestroy(second), cudaSuccess);
}

TEST_F(SimtRuntimeTest, AGraphReplaysWithWhatItsBuffersHold) {
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(device_, pinned_, kBytes, cudaMemcpyHostToDevice, stream_),
            cudaSuccess);
  ASSERT_EQ(Add(device_, device_, step_, kN, stream_), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(pinned_, device_, kBytes, cudaMemcpyDeviceToHost, stream_),
            cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(pinned_[5], 5) << "capturing runs nothing";
  for (int step = 1; step <= 3; ++step) {
    SetStep(step);
    ASSERT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  }
  EXPECT_EQ(pinned_[5], 5 + 1 + 2 + 3);
  ASSERT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
}

using SimtRuntimeDeathTest = SimtRuntimeTest;

TEST_F(SimtRuntimeDeathTest, AGraphDoesNotOutliveTheMemoryItRecorded) {
  float* out = nullptr;
  ASSERT_EQ(cudaMalloc(&out, kBytes), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(Add(out, device_, step_, kN, stream_), cudaSuccess);
  cudaGraph_t graph = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  cudaGraphExec_t exec = nullptr;
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph), cudaSuccess);
  ASSERT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  ASSERT_EQ(cudaGraphLaunch(exec, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  ASSERT_EQ(cudaFree(out), cudaSuccess);
  EXPECT_DEATH(
      {
        cudaGraphLaunch(exec, stream_);
        cudaStreamSynchronize(stream_);
      },
      "a recorded launch uses device memory that was freed");
  ASSERT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
}

TEST_F(SimtRuntimeTest, ACaptureInWhichTheHostWaitsOrAllocatesIsInvalid) {
  for (int call = 0; call < 3; ++call) {
    ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    ASSERT_EQ(Add(device_, device_, step_, kN, stream_), cudaSuccess);
    void* p = nullptr;
    const cudaError_t error = call == 0   ? cudaStreamSynchronize(stream_)
                              : call == 1 ? cudaMalloc(&p, 16)
                                          : cudaMemcpy(device_, pinned_, 4, cudaMemcpyHostToDevice);
    EXPECT_EQ(error, cudaErrorStreamCaptureUnsupported) << call;
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated) << call;
    EXPECT_EQ(graph, nullptr);
  }
}

TEST_F(SimtRuntimeTest, CopiesMindTheSideAndTheEndOfTheirBuffers) {
  float host = 0;
  EXPECT_EQ(cudaMemcpy(&host, &host, 4, cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device_, device_, 4, cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(device_ + 1, pinned_, kBytes, cudaMemcpyHostToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(device_, 0, kBytes + 1), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(&host), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(SimtRuntimeTest, ShapesAreRefusedAsByADevice) {
  const auto launch = [&](dim3 grid, dim3 block, size_t shared_bytes) {
    return simt::LaunchKernel<EmptyKernel>({grid, block, shared_bytes}, stream_);
  };
  EXPECT_EQ(launch(dim3(3, 2), dim3(32, 32), 0), cudaSuccess);
  EXPECT_EQ(launch(dim3(1), dim3(1025), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1), dim3(1, 1, 65), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(0), dim3(32), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1, 65536), dim3(32), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1), dim3(32), 48 * 1024 + 1), cudaErrorInvalidValue);
  const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  EXPECT_EQ(cudaFuncSetAttribute(EmptyKernel, attribute, 164 * 1024), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(EmptyKernel, attribute, 100 * 1024), cudaSuccess);
  EXPECT_EQ(launch(dim3(1), dim3(32), 48 * 1024 + 1), cudaSuccess);
}

TEST_F(SimtRuntimeTest, MemoryRunsOut) {
  size_t free_bytes = 0, total_bytes = 0, after = 0;
  ASSERT_EQ(cudaMemGetInfo(&free_bytes, &total_bytes), cudaSuccess);
  void* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, free_bytes + 1), cudaErrorMemoryAllocation);
  EXPECT_EQ(p, nullptr);
  ASSERT_EQ(cudaMalloc(&p, 1000), cudaSuccess);
  ASSERT_EQ(cudaMemGetInfo(&after, &total_bytes), cudaSuccess);
  EXPECT_EQ(after, free_bytes - 1000);
  EXPECT_EQ(cudaFree(p), cudaSuccess);
}

TEST_F(SimtRuntimeTest, HostThreadsMayShareTheDevice) {
  std::vector<int> wrong(2, -1);
  const auto work = [&wrong](size_t id) {
    cudaStream_t stream = nullptr;
    float* data = nullptr;
    int* step = nullptr;
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaMalloc(&data, kBytes);
    cudaMalloc(&step, sizeof(int));
    const int one = 1;
    cudaMemcpy(step, &one, sizeof one, cudaMemcpyHostToDevice);
    std::vector<float> values(kN, static_cast<float>(id));
    cudaMemcpyAsync(data, values.data(), kBytes, cudaMemcpyHostToDevice, stream);
    for (int i = 0; i < 20; ++i) Add(data, data, step, kN, stream);
    cudaMemcpyAsync(values.data(), data, kBytes, cudaMemcpyDeviceToHost, stream);
    wrong[id] = 0;
    for (const float v : values) wrong[id] += v != static_cast<float>(id) + 20;
    cudaFree(data);
    cudaFree(step);
    cudaStreamDestroy(stream);
  };
  std::thread first(work, 0), second(work, 1);
  first.join();
  second.join();
  EXPECT_EQ(wrong, (std::vector<int>{0, 0}));
}

}  // namespace
}  // namespace kuiper::simt_test
