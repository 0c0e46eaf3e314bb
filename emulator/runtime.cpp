#include "emulator/runtime.h"

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "emulator/memory.h"
#include "emulator/ptx_device.h"
#include "emulator/runtime_state.h"

// Kernels, streams, events and graphs.

namespace kuiper::simt {

using namespace dialect;  // NOLINT(google-build-using-namespace): defines CUDA's functions

Runtime& Device() {
  static Runtime runtime;
  return runtime;
}

HostWaits CurrentHostWaits() {
  const Lock lock(Device().mutex);
  return Device().waits;
}

Stream& Get(Stream* stream) {
  return stream == nullptr ? Device().default_stream : *stream;
}

void RunOne(Stream& s) {
  if (s.running) {
    std::fprintf(stderr, "simt: streams wait for each other\n");
    std::abort();
  }
  const Work work = std::move(s.queue.front());
  s.queue.pop_front();
  s.running = true;
  work();
  s.running = false;
}

void Drain(Stream& s) {
  while (!s.queue.empty()) RunOne(s);
}

void DrainAll() {
  Drain(Device().default_stream);
  for (Stream* s : Device().streams) Drain(*s);
}

cudaError_t Queue(Stream* stream, Node node) {
  const Lock lock(Device().mutex);
  Stream& s = Get(stream);
  if (s.capture != nullptr) {
    s.capture->nodes.push_back(std::move(node));
    return cudaSuccess;
  }
  s.queue.push_back(node.queued());
  if (CurrentOptions().eager_streams) Drain(s);
  return cudaSuccess;
}

cudaError_t Queue(Stream* stream, Work work) {
  return Queue(stream, Node{[work = std::move(work)] { return work; }, {}});
}

bool BreaksCapture(Stream& s) {
  if (s.capture != nullptr) s.capture_broken = true;
  return s.capture != nullptr;
}

namespace {

thread_local cudaStreamCaptureMode capture_mode = cudaStreamCaptureModeThreadLocal;

}  // namespace

bool BreaksAnyCapture() {
  if (capture_mode == cudaStreamCaptureModeRelaxed) return false;
  bool any = false;
  for (Stream* s : Device().streams) any |= BreaksCapture(*s);
  return any;
}

int NumLoadedKernels() {
  const Lock lock(Device().mutex);
  return static_cast<int>(Device().loaded_kernels.size());
}

void UnloadKernels() {
  const Lock lock(Device().mutex);
  Device().loaded_kernels.clear();
}

cudaError_t GetKernelAttributes(const void* kernel) {
  const Lock lock(Device().mutex);
  Device().loaded_kernels.insert(kernel);
  return Result(CurrentPretence().kernel_error);
}

cudaError_t SetKernelAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  const Lock lock(Device().mutex);
  Device().loaded_kernels.insert(kernel);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || static_cast<size_t>(value) > MaxSharedBytes())
    return Result(cudaErrorInvalidValue);
  Device().max_dynamic_shared[kernel] = value;
  return cudaSuccess;
}

namespace {

// Loads a kernel on its first use. If the driver cannot load kernels during a capture, the capture
// fails.
cudaError_t Load(const void* kernel, Stream& stream) {
  constexpr int kFirstThatLoads = 12030;
  if (Device().loaded_kernels.count(kernel) != 0) return cudaSuccess;
  if (CurrentPretence().driver_version < kFirstThatLoads && BreaksCapture(stream)) {
    return Result(cudaErrorStreamCaptureUnsupported);
  }
  Device().loaded_kernels.insert(kernel);
  return cudaSuccess;
}

// Returns the live device buffers that a kernel's parameters point to.
std::vector<MemoryRange> BuffersIn(const std::vector<char>& parameters) {
  std::vector<MemoryRange> buffers;
  for (size_t at = 0; at + sizeof(void*) <= parameters.size(); at += sizeof(void*)) {
    void* p = nullptr;
    std::memcpy(&p, parameters.data() + at, sizeof p);
    const MemoryRange buffer = FindDeviceBuffer(p);
    if (buffer.begin != nullptr) buffers.push_back(buffer);
  }
  return buffers;
}

// A graph contains addresses but does not own the memory, so the buffers must still exist.
void CheckAlive(const std::vector<MemoryRange>& buffers) {
  for (const MemoryRange& buffer : buffers) {
    if (FindBuffer(buffer.begin).id != buffer.id)
      Die("a graph uses memory that was freed: a buffer of " + std::to_string(buffer.bytes) +
          " bytes");
  }
}

Work QueuedGraph(const Graph& graph) {
  std::vector<Work> works;
  for (const Node& node : graph.nodes) {
    CheckAlive(node.uses);
    works.push_back(node.queued());
  }
  return [works = std::move(works)] {
    for (const Work& work : works) work();
  };
}

}  // namespace

cudaError_t QueueKernel(KernelCall call, Stream* stream) {
  const Lock lock(Device().mutex);
  int64_t& left = CurrentPretence().launches_until_fault;
  if (IsFaulty()) return Result(cudaErrorLaunchFailure);
  if (left > 0) --left;
  const LaunchShape& shape = call.shape;
  const dim3 g = shape.grid, b = shape.block;
  const uint64_t threads = uint64_t{b.x} * b.y * b.z, blocks = uint64_t{g.x} * g.y * g.z;
  if (threads == 0 || threads > kMaxThreads || b.z > 64)
    return Result(cudaErrorInvalidConfiguration);
  if (blocks == 0 || blocks > 0x7fffffff || g.y > 65535 || g.z > 65535)
    return Result(cudaErrorInvalidConfiguration);
  const auto& limits = Device().max_dynamic_shared;
  const auto limit = limits.find(call.address);
  if (shape.shared_bytes >
      (limit == limits.end() ? kStaticSharedBytes : static_cast<size_t>(limit->second)))
    return Result(cudaErrorInvalidValue);
  const cudaError_t loaded = Load(call.address, Get(stream));
  if (loaded != cudaSuccess) return loaded;
  if (limit != limits.end()) call.shape.shared_limit = MaxSharedBytes();
  std::vector<MemoryRange> uses;
  if (Get(stream).capture != nullptr) uses = BuffersIn(call.parameters);
  Work run = [kept = std::move(call)] { RunCall(kept); };
  return Queue(stream, Node{[run = std::move(run)] { return run; }, std::move(uses)});
}

namespace dialect {

cudaError_t cudaDeviceSynchronize() {
  const Lock lock(Device().mutex);
  if (BreaksAnyCapture()) return Result(cudaErrorStreamCaptureUnsupported);
  ++Device().waits.syncs;
  DrainAll();
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  const Lock lock(Device().mutex);
  if (flags != cudaStreamNonBlocking) return Result(cudaErrorInvalidValue);
  *stream = new Stream;
  Device().streams.insert(*stream);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  const Lock lock(Device().mutex);
  if (Device().streams.count(stream) == 0) return Result(cudaErrorInvalidResourceHandle);
  Drain(*stream);
  Device().streams.erase(stream);
  delete stream->capture;
  delete stream;
  return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  const Lock lock(Device().mutex);
  if (IsFaulty()) return Result(cudaErrorLaunchFailure);
  if (BreaksCapture(Get(stream))) return Result(cudaErrorStreamCaptureUnsupported);
  ++Device().waits.syncs;
  Drain(Get(stream));
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new Event;
  (*event)->sleeps = (flags & cudaEventBlockingSync) != 0;
  (*event)->has_time = (flags & cudaEventDisableTiming) == 0;
  return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  const Lock lock(Device().mutex);
  while (event->reached < event->recorded) RunOne(*event->stream);
  delete event;
  return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  const Lock lock(Device().mutex);
  if (BreaksCapture(Get(stream))) return Result(cudaErrorStreamCaptureUnsupported);
  event->stream = &Get(stream);
  const uint64_t ticket = ++event->recorded;
  return Queue(stream, [event, ticket] {
    event->reached = ticket;
    event->time = std::chrono::steady_clock::now();
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  const Lock lock(Device().mutex);
  if (BreaksCapture(Get(stream))) return Result(cudaErrorStreamCaptureUnsupported);
  Stream* const source = event->stream;
  const uint64_t ticket = event->recorded;
  return Queue(stream, [event, source, ticket] {
    while (event->reached < ticket) RunOne(*source);
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  const Lock lock(Device().mutex);
  if (event->reached == event->recorded) return cudaSuccess;
  RunOne(*event->stream);  // so that a polling host makes progress
  return cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  const Lock lock(Device().mutex);
  if (event->reached == event->recorded) return cudaSuccess;
  while (event->reached < event->recorded) RunOne(*event->stream);
  ++Device().waits.events;
  Device().waits.polled += !event->sleeps;
  Device().waits.idle += event->stream->queue.empty();
  return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  const Lock lock(Device().mutex);
  for (const cudaEvent_t event : {begin, end}) {
    if (!event->has_time || event->recorded == 0) return Result(cudaErrorInvalidValue);
    if (event->reached < event->recorded) return Result(cudaErrorNotReady);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  const Lock lock(Device().mutex);
  if (stream == nullptr || stream->capture != nullptr)
    return Result(cudaErrorStreamCaptureUnsupported);
  stream->capture = new Graph;
  stream->capture_broken = false;
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const Lock lock(Device().mutex);
  *graph = nullptr;
  if (stream == nullptr || stream->capture == nullptr) return Result(cudaErrorInvalidValue);
  std::unique_ptr<Graph> captured(std::exchange(stream->capture, nullptr));
  if (stream->capture_broken) return Result(cudaErrorStreamCaptureInvalidated);
  if (CurrentPretence().capture_error != cudaSuccess) {
    return Result(CurrentPretence().capture_error);
  }
  *graph = captured.release();
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  const Lock lock(Device().mutex);
  const Stream& s = Get(stream);
  *status = s.capture == nullptr ? cudaStreamCaptureStatusNone
            : s.capture_broken   ? cudaStreamCaptureStatusInvalidated
                                 : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  std::swap(*mode, capture_mode);
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long) {  // NOLINT(google-runtime-int)
  *exec = new Graph(*graph);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return Queue(stream, Node{[exec] { return QueuedGraph(*exec); }, {}});
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  const Lock lock(Device().mutex);
  DrainAll();  // the graph may be queued
  delete exec;
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

}  // namespace dialect
}  // namespace kuiper::simt
