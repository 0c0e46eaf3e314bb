// How the backend handles a device: its memory, unusable devices, faults. The emulated device
// simulates each case.
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "emulator/memory.h"
#include "emulator/runtime.h"
#include "kuiper/engine/engine.h"
#include "kuiper/ops/ops.h"
#include "test/engine/picture_engines.h"
#include "test/log_capture.h"
#include "test/test_data.h"

namespace kuiper {
namespace {

constexpr Device kSimt = {DeviceType::kSimt, 0};

class DeviceCareTest : public ::testing::Test {
 protected:
  ~DeviceCareTest() override { pretence_ = before_; }

  static EngineConfig Config() {
    EngineConfig config;
    config.model_path = test::Source("test/data/goldens/qwen3-gqa2-d128-f32");
    config.device = kSimt;
    config.need_tokenizer = false;
    config.max_context = 64;
    return config;
  }
  Request MakeRequest(const Engine& engine) const {
    Request request;
    request.prompt = Prompt(9, Vocab(engine));
    request.max_new_tokens = 6;
    request.ignore_eos = true;
    return request;
  }
  Status MakeError() { return MakeOps(kSimt, {}).status(); }

  simt::Pretence& pretence_ = simt::CurrentPretence();
  const simt::Pretence before_ = pretence_;
};
using DeviceFaultDeathTest = DeviceCareTest;

size_t MemAvailable() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("MemAvailable:")) return std::stoull(line.substr(13)) * 1024;
  }
  return 0;
}

TEST_F(DeviceCareTest, PlanIsWhatTheEngineAllocates) {
  const size_t idle = simt::AllocatedDeviceBytes();
  const auto ops = MakeOps(kSimt, {}).value();
  const size_t of_ops = simt::AllocatedDeviceBytes() - idle;
  pretence_.integrated = false;  // host memory is not the device's
  for (const bool paged : {false, true}) {
    for (const std::optional<DType> dtype : {std::optional<DType>(), std::optional(DType::kF16)}) {
      EngineConfig config = Config();
      config.paged = paged;
      config.dtype = dtype;
      config.max_num_seqs = 5;
      config.prompt_logits = paged;
      const size_t before = simt::AllocatedDeviceBytes();
      const auto engine = Create(config);
      ASSERT_NE(engine, nullptr);
      RunToEnd(*engine, MakeRequest(*engine));
      const double allocated = static_cast<double>(simt::AllocatedDeviceBytes() - before - of_ops);
      const double planned = static_cast<double>(engine->memory_plan().total_bytes());
      EXPECT_NEAR(planned / allocated, 1, 0.001) << "paged " << paged;
    }
  }
}

// Three requests run in a step. The one whose image finds no memory ends; the others continue as
// they do alone. Later there is memory again.
TEST_F(DeviceCareTest, APictureWithoutMemoryEndsItsOwnRequestOnly) {
  for (const bool run_ahead : {false, true}) {
    EngineConfig config = test::BaseConfig(kSimt);
    config.max_num_seqs = 3;
    config.run_ahead = run_ahead;
    const auto alone = Create(config), engine = Create(config);
    ASSERT_TRUE(alone != nullptr && engine != nullptr);
    RunToEnd(*engine, test::MakeRequest(test::FindPrompt("text"), 1));  // memory of the KV cache
    const Request text = test::MakeRequest(test::FindPrompt("text"));
    const Request small = test::MakeRequest(test::FindPrompt("middle"));
    const Request large = test::MakeRequest(test::FindPrompt("wide"));
    const Completion expected_text = RunToEnd(*alone, text);
    const Completion expected_small = RunToEnd(*alone, small);
    const size_t per_token = alone->memory_plan().picture_bytes /
                             static_cast<size_t>(*alone->config().vision_cache_tokens);
    const auto first = engine->Add(text), second = engine->Add(large), third = engine->Add(small);
    ASSERT_TRUE(first.ok() && second.ok() && third.ok());
    const simt::Pretence before = pretence_;
    const size_t room = per_token * (small.images[0].num_tokens() + 1);
    pretence_.used_by_others = pretence_.total_bytes - simt::AllocatedDeviceBytes() - room;
    while (engine->HasWork()) engine->Step();
    pretence_ = before;
    const Completion failed = engine->Take(*second).value();
    EXPECT_EQ(failed.finish, FinishReason::kError);
    EXPECT_EQ(failed.error.code(), StatusCode::kResourceExhausted);
    EXPECT_NE(failed.error.message().find("there is no memory for the 35 tokens of wide.image0"),
              std::string::npos)
        << failed.error.message();
    ExpectSameBits(engine->Take(*first).value(), expected_text, "text");
    ExpectSameBits(engine->Take(*third).value(), expected_small, "small");
    ExpectSameBits(RunToEnd(*engine, large), RunToEnd(*alone, large), "later");
  }
}

TEST_F(DeviceCareTest, IntegratedDevicesBudgetFromAvailableHostMemory) {
  // The page cache holds almost all memory and could release it.
  pretence_.used_by_others = pretence_.total_bytes - (size_t{64} << 20);
  const auto integrated = MakeOps(kSimt, {}).value();
  const size_t available = MemAvailable();
  const double expected = static_cast<double>(std::min(available, pretence_.total_bytes));
  EXPECT_NEAR(static_cast<double>(integrated->device().FreeBytes()) / expected, 1, 0.2);
  EXPECT_TRUE(integrated->device().traits().unified_memory);
  pretence_.integrated = false;
  const auto discrete = MakeOps(kSimt, {}).value();
  EXPECT_LE(discrete->device().FreeBytes(), size_t{64} << 20);
  EXPECT_FALSE(discrete->device().traits().unified_memory);
}

// Other programs on the host also need memory.
TEST_F(DeviceCareTest, IntegratedDevicesLeaveMoreOfTheMemory) {
  EngineConfig config = Config();
  const OpenedModel model = OpenModel(config.model_path).value();
  EXPECT_EQ(Engine::Plan(config, model)->utilization, 0.8);
  config.memory_utilization = 0.5;
  EXPECT_EQ(Engine::Plan(config, model)->utilization, 0.5);
  pretence_.integrated = false;
  EXPECT_EQ(Engine::Plan(config, model)->utilization, 0.5);
  config.memory_utilization.reset();
  EXPECT_EQ(Engine::Plan(config, model)->utilization, 0.9);
  config.device = Device{};
  EXPECT_EQ(Engine::Plan(config, model)->utilization, 0.9);
}

// Host and device share a power budget.
TEST_F(DeviceCareTest, HostSleepsWhileAnIntegratedDeviceWorks) {
  for (const bool integrated : {true, false}) {
    pretence_.integrated = integrated;
    const auto engine = Create(Config());
    ASSERT_NE(engine, nullptr);
    const simt::HostWaits before = simt::CurrentHostWaits();
    RunToEnd(*engine, MakeRequest(*engine));
    const simt::HostWaits after = simt::CurrentHostWaits();
    ASSERT_GT(after.events, before.events);
    EXPECT_EQ(after.polled - before.polled, integrated ? 0 : after.events - before.events);
  }
}

TEST_F(DeviceCareTest, DevicesThatCannotBeUsedSayWhy) {
  const std::string cpu = "device cpu runs without one";
  pretence_.count_error = simt::dialect::cudaErrorNoDevice;
  EXPECT_EQ(MakeError().code(), StatusCode::kUnavailable);
  EXPECT_EQ(MakeError().message(), "no CUDA device found (driver reports: cudaErrorNoDevice)");
  EXPECT_EQ(MakeError().hint(), cpu);
  pretence_.count_error = simt::dialect::cudaErrorInsufficientDriver;
  pretence_.driver_version = 12040;
  EXPECT_EQ(
      MakeError().message(),
      "no usable CUDA device: the driver (CUDA 12.4) is older than this build's CUDA toolkit");
  pretence_.driver_version = 0;
  EXPECT_EQ(MakeError().message(), "no CUDA device found (no NVIDIA driver is installed)");
  pretence_ = before_;
  for (const auto error : {simt::dialect::cudaErrorNoKernelImageForDevice,
                           simt::dialect::cudaErrorInvalidDeviceFunction}) {
    pretence_.kernel_error = error;
    EXPECT_EQ(MakeError().code(), StatusCode::kUnavailable);
    EXPECT_EQ(MakeError().message(), "this build has kernels for sm_87 but the device is sm_87");
    EXPECT_EQ(MakeError().hint().find("build with -DCMAKE_CUDA_ARCHITECTURES=87"), 0u);
  }
}

TEST_F(DeviceCareTest, TooLittleMemoryIsRefusedBeforeAnythingIsLoaded) {
  pretence_.total_bytes = size_t{1} << 20;
  const size_t before = simt::AllocatedDeviceBytes();
  const auto engine = Engine::Create(Config());
  EXPECT_EQ(engine.status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(engine.status().message().find("needs 0.0"), 0u) << engine.status().message();
  EXPECT_EQ(simt::AllocatedDeviceBytes(), before);
}

TEST_F(DeviceCareTest, FailedCaptureIsLoggedOnceAndStaysEager) {
  EngineConfig config = Config();
  const auto eager = Create(config);
  config.use_graph = true;
  pretence_.capture_error = simt::dialect::cudaErrorStreamCaptureInvalidated;
  const test::LogCapture capture;
  const auto graph = Create(config);
  ASSERT_TRUE(eager != nullptr && graph != nullptr);
  const std::vector<int32_t> expected = RunToEnd(*eager, MakeRequest(*eager)).tokens;
  const std::vector<int32_t> first = RunToEnd(*graph, MakeRequest(*graph)).tokens;
  const std::vector<int32_t> second = RunToEnd(*graph, MakeRequest(*graph)).tokens;
  const std::string& log = capture.text();
  EXPECT_EQ(first, expected);
  EXPECT_EQ(second, expected);
  const std::string line = "run without a graph";
  const size_t at = log.find(line);
  ASSERT_NE(at, std::string::npos) << log;
  EXPECT_EQ(log.find(line, at + 1), std::string::npos) << log;
}

// JetPack 6.0's driver is for CUDA 12.2. A kernel that is launched for the first time during a
// capture ends the capture.
TEST_F(DeviceCareTest, DriversThatLoadNothingWhileRecordingGetGraphs) {
  EngineConfig config = Config();
  const auto eager = Create(config);
  ASSERT_NE(eager, nullptr);
  const std::vector<int32_t> expected = RunToEnd(*eager, MakeRequest(*eager)).tokens;
  config.use_graph = true;
  pretence_.driver_version = 12020;
  const test::LogCapture capture;
  for (const bool warm_up : {false, true}) {
    config.warm_up = warm_up;
    simt::UnloadKernels();
    const auto graph = Create(config);
    ASSERT_NE(graph, nullptr);
    EXPECT_EQ(RunToEnd(*graph, MakeRequest(*graph)).tokens, expected) << "warm-up " << warm_up;
  }
  EXPECT_EQ(capture.text().find("without a graph"), std::string::npos) << capture.text();
}

TEST_F(DeviceCareTest, LaunchThatFailsWhileRecordingFailsTheRecording) {
  const auto ops = MakeOps(kSimt, {}).value();
  const Buffer memory = ops->device().Allocate(64).value();
  const FillRandomArgs fill{.out = memory.As(DType::kF32, {16})};
  pretence_.driver_version = 12020;
  simt::UnloadKernels();
  const auto record = [&] { return ops->device().Capture([&] { ops->Run(fill); }); };
  EXPECT_EQ(record().status().message(),
            "cannot record a CUDA graph: cudaErrorStreamCaptureUnsupported");
  ops->Run(fill);
  EXPECT_TRUE(record().ok());
}

TEST_F(DeviceCareTest, ScratchMemoryDoesNotMoveUnderARecordedStep) {
  const auto ops = MakeOps(kSimt, {}).value();
  OpsLimits limits{
      .max_tokens = 4, .max_seqs = 2, .max_features = 64, .max_context = 64, .vocab = 8};
  ASSERT_TRUE(ops->Reserve(limits).ok());
  const Buffer memory = ops->device().Allocate(64).value();
  const FillRandomArgs fill{.out = memory.As(DType::kF32, {16})};
  auto graph = ops->device().Capture([&] { ops->Run(fill); }).value();
  EXPECT_TRUE(ops->Reserve(limits).ok()) << "what is there is enough";
  limits.max_context *= 16;
  EXPECT_EQ(ops->Reserve(limits).code(), StatusCode::kInvalidArgument);
  graph->Replay();
  graph.reset();
  EXPECT_TRUE(ops->Reserve(limits).ok());
}

TEST_F(DeviceCareTest, NoRequestLoadsAKernelAfterTheWarmUp) {
  for (const bool graph : {false, true}) {
    EngineConfig config = Config();
    config.use_graph = graph;
    config.max_num_seqs = 2;
    for (const bool warm_up : {false, true}) {
      config.warm_up = warm_up;
      simt::UnloadKernels();
      const auto engine = Create(config);
      ASSERT_NE(engine, nullptr);
      const int loaded = simt::NumLoadedKernels();
      Request sampled = MakeRequest(*engine);
      sampled.sampling.temperature = 1;
      sampled.sampling.top_k = 5;
      ASSERT_TRUE(engine->Add(sampled).ok() && engine->Add(MakeRequest(*engine)).ok());
      while (engine->HasWork()) engine->Step();
      EXPECT_EQ(simt::NumLoadedKernels() == loaded, warm_up) << "graph " << graph;
    }
  }
}

TEST_F(DeviceFaultDeathTest, FaultEndsTheProcessWithTheCallAndExitCode8) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const auto engine = Create(Config());
        pretence_.launches_until_fault = 60;
        RunToEnd(*engine, MakeRequest(*engine));
      },
      ::testing::ExitedWithCode(8), "error: CUDA error at .*cudaErrorLaunchFailure");
}

}  // namespace
}  // namespace kuiper
