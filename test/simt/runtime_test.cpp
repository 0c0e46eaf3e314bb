// The host's side of the emulated device: the effects of a wrong order of calls, a wrong pointer or
// a wrong shape, and what a captured graph replays.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "emulator/dialect.h"

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
 public:
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
  cudaError_t Upload(const float* from) {
    return cudaMemcpyAsync(device_, from, kBytes, cudaMemcpyHostToDevice, stream_);
  }
  cudaError_t Download(float* to) {
    return cudaMemcpyAsync(to, device_, kBytes, cudaMemcpyDeviceToHost, stream_);
  }
  // Returns the work that `body` queues as a graph.
  template <typename Body>
  cudaGraphExec_t Record(const Body& body) {
    EXPECT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(body(), cudaSuccess);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
    cudaGraphExec_t exec = nullptr;
    EXPECT_EQ(cudaGraphInstantiate(&exec, graph), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
    return exec;
  }
  cudaError_t Replay(cudaGraphExec_t exec) {
    const cudaError_t error = cudaGraphLaunch(exec, stream_);
    return error == cudaSuccess ? cudaStreamSynchronize(stream_) : error;
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

TEST_F(SimtRuntimeTest, PageableMemoryIsReadAtOnceAndWrittenBeforeTheCallReturns) {
  std::vector<float> pageable(kN, 5), got(kN);
  ASSERT_EQ(Upload(pageable.data()), cudaSuccess);
  pageable[3] = -2;
  ASSERT_EQ(Add(device_, device_, step_, kN, stream_), cudaSuccess);
  ASSERT_EQ(Download(got.data()), cudaSuccess);
  EXPECT_EQ(got[3], 6);
}

TEST_F(SimtRuntimeTest, CopiesMayChangePinnedMemoryThatACopyWaitsFor) {
  ASSERT_EQ(Upload(pinned_), cudaSuccess);
  for (int round = 0; round < 3; ++round) {
    ASSERT_EQ(Add(device_, device_, step_, kN, stream_), cudaSuccess);
    ASSERT_EQ(Download(pinned_), cudaSuccess);
    ASSERT_EQ(Upload(pinned_), cudaSuccess);
  }
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(pinned_[7], 10);
  pinned_[7] = 20;  // no copy is in flight
  ASSERT_EQ(Upload(pinned_), cudaSuccess);
  ASSERT_EQ(Download(pinned_), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  EXPECT_EQ(pinned_[7], 20);
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

TEST_F(SimtRuntimeTest, EventsTellTheTimeBetweenThem) {
  cudaEvent_t begin = nullptr, end = nullptr, untimed = nullptr;
  for (cudaEvent_t* event : {&begin, &end}) {
    ASSERT_EQ(cudaEventCreateWithFlags(event, cudaEventBlockingSync), cudaSuccess);
  }
  ASSERT_EQ(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming), cudaSuccess);
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaErrorInvalidValue);
  ASSERT_EQ(cudaEventRecord(begin, stream_), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(untimed, stream_), cudaSuccess);
  for (int i = 0; i < 10; ++i) ASSERT_EQ(Add(device_, device_, step_, kN, stream_), cudaSuccess);
  ASSERT_EQ(cudaEventRecord(end, stream_), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaErrorNotReady);
  ASSERT_EQ(cudaEventSynchronize(end), cudaSuccess);
  ASSERT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaSuccess);
  EXPECT_GT(milliseconds, 0.f);
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, untimed, end), cudaErrorInvalidValue);
  for (const cudaEvent_t event : {begin, end, untimed}) {
    ASSERT_EQ(cudaEventDestroy(event), cudaSuccess);
  }
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
  const auto records = {
      +[](SimtRuntimeTest& t, float* p) { return Add(p, t.device_, t.step_, kN, t.stream_); },
      +[](SimtRuntimeTest& t, float* p) {
        return cudaMemcpyAsync(p, t.pinned_, kBytes, cudaMemcpyHostToDevice, t.stream_);
      },
      +[](SimtRuntimeTest& t, float* p) { return cudaMemsetAsync(p, 0, kBytes, t.stream_); },
  };
  for (const auto record : records) {
    float* out = nullptr;
    ASSERT_EQ(cudaMalloc(&out, kBytes), cudaSuccess);
    const cudaGraphExec_t exec = Record([&] { return record(*this, out); });
    ASSERT_EQ(Replay(exec), cudaSuccess);
    ASSERT_EQ(cudaFree(out), cudaSuccess);
    EXPECT_DEATH(Replay(exec), "a graph uses memory that was freed: a buffer of 400 bytes");
    ASSERT_EQ(cudaMalloc(&out, kBytes), cudaSuccess);  // often at the same address
    EXPECT_DEATH(Replay(exec), "a graph uses memory that was freed") << "it is another buffer";
    ASSERT_EQ(cudaFree(out), cudaSuccess);
    ASSERT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  }
  float* host = nullptr;
  ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&host), kBytes), cudaSuccess);
  const cudaGraphExec_t exec = Record([&] { return Upload(host); });
  ASSERT_EQ(cudaFreeHost(host), cudaSuccess);
  EXPECT_DEATH(Replay(exec), "a graph uses memory that was freed");
  ASSERT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
}

TEST_F(SimtRuntimeDeathTest, TheHostLeavesPinnedMemoryAloneUntilItsCopyHasRun) {
  const std::string copy = "the host wrote to pinned memory while a copy ";
  const std::string where = " was under way: 400 bytes from byte 0 of a buffer of 400";
  const auto write_after = [&](cudaError_t queued) {
    if (queued != cudaSuccess) return;
    pinned_[99] += 1;
    cudaStreamSynchronize(stream_);
  };
  EXPECT_DEATH(write_after(Upload(pinned_)), copy + "from it" + where);
  EXPECT_DEATH(write_after(Download(pinned_)), copy + "to it" + where);
  const cudaGraphExec_t exec = Record([&] { return Upload(pinned_); });
  pinned_[0] = -1;
  ASSERT_EQ(Replay(exec), cudaSuccess) << "a graph reads when it is launched";
  EXPECT_DEATH(write_after(cudaGraphLaunch(exec, stream_)), copy + "from it" + where);
  ASSERT_EQ(cudaGraphExecDestroy(exec), cudaSuccess);
  // As the sampler does: two alternating buffers, and an event between.
  float* other = nullptr;
  ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&other), kBytes), cudaSuccess);
  ASSERT_EQ(Upload(pinned_), cudaSuccess);
  other[0] = 3;
  ASSERT_EQ(Upload(other), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  ASSERT_EQ(cudaFreeHost(other), cudaSuccess);
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
  EXPECT_EQ(cudaMemcpy(device_, pinned_ + 1, kBytes, cudaMemcpyHostToDevice), cudaErrorInvalidValue)
      << "past the end of pinned memory";
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
  // Only captured, because running this many blocks takes time.
  EXPECT_EQ(cudaGraphExecDestroy(Record([&] { return launch(dim3(1, 65535), dim3(1), 0); })),
            cudaSuccess);
  EXPECT_EQ(launch(dim3(1, 65536), dim3(1), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1, 1, 65536), dim3(1), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1u << 31), dim3(1), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(launch(dim3(1), dim3(32), 48 * 1024 + 1), cudaErrorInvalidValue);
  const auto attribute = cudaFuncAttributeMaxDynamicSharedMemorySize;
  EXPECT_EQ(cudaFuncSetAttribute(EmptyKernel, attribute, 164 * 1024), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(EmptyKernel, attribute, 100 * 1024), cudaSuccess);
  EXPECT_EQ(launch(dim3(1), dim3(32), 48 * 1024 + 1), cudaSuccess);
}

// Uses a new kernel each time, because an allowed size stays.
template <int kArch>
__global__ void KernelOf() {}

template <int kArch>
void CheckSharedMemory(int kilobytes) {
  simt::CurrentOptions().arch = kArch;
  cudaDeviceProp properties;
  ASSERT_EQ(cudaGetDeviceProperties(&properties, 0), cudaSuccess);
  EXPECT_EQ(properties.major * 10 + properties.minor, kArch);
  const auto allow = [](int bytes) {
    return cudaFuncSetAttribute(KernelOf<kArch>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                bytes);
  };
  const auto launch = [](size_t bytes) {
    return simt::LaunchKernel<KernelOf<kArch>>({dim3(1), dim3(1), bytes}, nullptr);
  };
  const int limit = kilobytes * 1024;
  EXPECT_EQ(allow(limit + 1), cudaErrorInvalidValue) << kArch;
  EXPECT_EQ(launch(48 * 1024 + 1), cudaErrorInvalidValue) << kArch;
  EXPECT_EQ(allow(limit), cudaSuccess) << kArch;
  EXPECT_EQ(launch(limit), cudaSuccess) << kArch;
  EXPECT_EQ(launch(limit + 1), cudaErrorInvalidValue) << kArch;
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

TEST_F(SimtRuntimeTest, SharedMemoryEndsWhereTheArchitectureSays) {
  CheckSharedMemory<80>(163);
  CheckSharedMemory<86>(99);
  CheckSharedMemory<87>(163);
  CheckSharedMemory<89>(99);
  CheckSharedMemory<90>(227);
}

__global__ void VariableKernel() {
  KU_SIMT_SHARED(variable, char[1024]);
  variable[0] = 1;
}

TEST_F(SimtRuntimeDeathTest, VariablesCountAgainstTheSharedMemoryOfALaunch) {
  const auto run = [&](size_t bytes) {
    ASSERT_EQ(simt::LaunchKernel<VariableKernel>({dim3(1), dim3(1), bytes}, stream_), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
  };
  run(47 * 1024);
  EXPECT_DEATH(run(47 * 1024 + 1), "out of shared memory: 1024 bytes of variables, 48129 dynamic");
  ASSERT_EQ(
      cudaFuncSetAttribute(VariableKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 48 * 1024),
      cudaSuccess);
  run(48 * 1024);
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
