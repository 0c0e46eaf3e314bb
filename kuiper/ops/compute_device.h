// An opened device as the host sees it: memory, and one queue in whose order copies and ops run.
// Storage (KV cache, swap space, batch arrays) takes this and knows no op; Ops::device() gives it
// to who has both. A `Device` only names a device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kuiper/base/buffer.h"
#include "kuiper/base/device.h"
#include "kuiper/base/status.h"
#include "kuiper/base/tensor.h"

namespace kuiper {

// A step recorded by ComputeDevice::Capture. Replay repeats it with the arguments of the recording:
// memory is read again, host scalars are frozen.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;
  virtual void Replay() = 0;
};

// Adds up how long stretches of a device's work take, without waiting for the device.
class WorkTimer {
 public:
  virtual ~WorkTimer() = default;
  // In order with the ops; stretches do not overlap. The timer must not outlive the device.
  virtual void Begin() = 0;
  virtual void End() = 0;
  // Of all stretches so far; waits for the last one.
  virtual double Milliseconds() = 0;
};

// What decides how memory is planned and steps are launched.
struct DeviceTraits {
  bool reads_host_memory = false;  // ops read any memory of the host, mapped files as well
  bool unified_memory = false;     // memory of the host comes out of the same memory
  bool is_asynchronous = false;    // ops go on after the call, so the host can run ahead
  int pass_rows = 0;       // rows of a step for which weights are read once; 0: rows cost by number
  size_t graph_bytes = 0;  // an allowance for the memory of one recorded step
};

class ComputeDevice {
 public:
  virtual ~ComputeDevice() = default;
  virtual Device id() const = 0;
  // One line for logs, e.g. "cpu (AVX3_BF16, 2 threads)".
  virtual std::string Description() const = 0;
  virtual DeviceTraits traits() const = 0;
  // kResourceExhausted when there is not enough memory, kUnavailable after a fault of the device.
  // Uninitialised; pages of the OS are touched only when used. Never called inside a step.
  virtual StatusOr<Buffer> Allocate(size_t bytes) = 0;
  // The same for memory that is used as a whole or in large pieces: in huge pages where the system
  // has them.
  virtual StatusOr<Buffer> AllocateWhole(size_t bytes) { return Allocate(bytes); }
  // Host memory that uploads fastest (plain memory on the CPU).
  virtual StatusOr<Buffer> AllocatePinned(size_t bytes) = 0;
  // Memory that could still be allocated, in bytes.
  virtual size_t FreeBytes() const = 0;
  // In order with the ops; src stays untouched until Sync or WaitFor a later mark. On a device,
  // neither waits when the host side is pinned memory.
  virtual void Upload(Tensor dst, Tensor src) = 0;
  virtual void Download(Tensor dst, Tensor src) = 0;
  virtual void Sync() = 0;
  // Sync for programs that outlive what makes it fail. kInvalidArgument: the stream in use is being
  // captured. kUnavailable, in the driver's words: a fault of the device.
  virtual Status TrySync() {
    Sync();
    return OkStatus();
  }
  // Marks this point in the order of the work; WaitFor returns when everything before the mark is
  // done, while what came after it goes on. Marks may be waited for in any order and repeatedly.
  virtual int64_t Mark() = 0;
  virtual void WaitFor(int64_t mark) = 0;
  // By default that of the host: right where ops have ended when their call returns.
  virtual std::unique_ptr<WorkTimer> MakeTimer();
  // Records `body`, which may only call ops; it is executed once while being recorded. The graph
  // must not outlive the device.
  virtual StatusOr<std::unique_ptr<CapturedGraph>> Capture(const std::function<void()>& body) = 0;
  // Runs `body`, which may only call ops and copies. kInternal, in the driver's words: one was
  // refused, for example inside a capture or after a fault of the device.
  virtual Status Enqueue(const std::function<void()>& body) {
    body();
    return OkStatus();
  }
  // Everything from here on goes to a stream of the caller, a cudaStream_t; null is CUDA's default
  // stream. kInvalidArgument: this device has no streams.
  virtual Status SetStream(void* /*stream*/) {
    return Status(StatusCode::kInvalidArgument, Description() + " has no streams");
  }
};

}  // namespace kuiper
