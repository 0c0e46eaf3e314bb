// An opened device as the host sees it: memory, and one queue in which copies and ops run in order.
// Storage (KV cache, swap space, batch arrays) uses this class and depends on no op. Code that has
// Ops gets it from Ops::device(). A `Device` only names a device.
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

// A step captured by ComputeDevice::Capture. Replay repeats it with the captured arguments: memory
// is read again, host scalars keep their values.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;
  virtual void Replay() = 0;
};

// Adds up the durations of intervals of a device's work, without waiting for the device.
class WorkTimer {
 public:
  virtual ~WorkTimer() = default;
  // Enqueued in order with the ops; intervals do not overlap. The timer must not outlive the
  // device.
  virtual void Begin() = 0;
  virtual void End() = 0;
  // Returns the sum of all intervals so far; waits for the end of the last one.
  virtual double Milliseconds() = 0;
};

// Properties that determine how memory is planned and steps are launched.
struct DeviceTraits {
  bool reads_host_memory = false;  // ops can read all host memory, including mapped files
  bool unified_memory = false;     // the device and the host share their memory
  bool is_asynchronous = false;    // ops continue after the call returns, so the host can run ahead
  // Rows of a step for which weights are read once; 0: the cost depends on the number of rows.
  int pass_rows = 0;
  size_t graph_bytes = 0;  // estimated memory of one captured step
};

class ComputeDevice {
 public:
  virtual ~ComputeDevice() = default;
  virtual Device id() const = 0;
  // Returns one line for logs, e.g. "cpu (AVX3_BF16, 2 threads)".
  virtual std::string Description() const = 0;
  virtual DeviceTraits traits() const = 0;
  // Returns uninitialised memory; the OS allocates its pages only when they are used.
  // kResourceExhausted if there is not enough memory, kUnavailable after a fault of the device.
  // Never called inside a step.
  virtual StatusOr<Buffer> Allocate(size_t bytes) = 0;
  // Allocate for memory that is used as a whole or in large pieces: uses huge pages if the system
  // has them.
  virtual StatusOr<Buffer> AllocateWhole(size_t bytes) { return Allocate(bytes); }
  // Allocates the host memory that uploads fastest (plain memory on the CPU).
  virtual StatusOr<Buffer> AllocatePinned(size_t bytes) = 0;
  // Returns the bytes that could still be allocated.
  virtual size_t FreeBytes() const = 0;
  // Copies, in order with the ops. Do not change src until Sync or WaitFor a later mark. On a
  // device, neither call waits if the host side is pinned memory.
  virtual void Upload(Tensor dst, Tensor src) = 0;
  virtual void Download(Tensor dst, Tensor src) = 0;
  virtual void Sync() = 0;
  // Sync for programs that continue after the device fails. kInvalidArgument: the current stream is
  // being captured. kUnavailable, with the driver's message: a fault of the device.
  virtual Status TrySync() {
    Sync();
    return OkStatus();
  }
  // Mark records an event in the work queue. WaitFor returns once all work before the event is
  // done; later work may still run. Events may be waited for in any order and repeatedly.
  virtual int64_t Mark() = 0;
  virtual void WaitFor(int64_t mark) = 0;
  // The default timer measures host time, which is correct if ops have finished when their call
  // returns.
  virtual std::unique_ptr<WorkTimer> MakeTimer();
  // Captures `body`, which may only call ops; it is executed once during the capture. The graph
  // must not outlive the device.
  virtual StatusOr<std::unique_ptr<CapturedGraph>> Capture(const std::function<void()>& body) = 0;
  // Runs `body`, which may only call ops and copies. kInternal, with the driver's message: one was
  // refused, for example inside a capture or after a fault of the device.
  virtual Status Enqueue(const std::function<void()>& body) {
    body();
    return OkStatus();
  }
  // Sends all later work to the caller's stream, a cudaStream_t; null is CUDA's default stream.
  // kInvalidArgument: this device has no streams.
  virtual Status SetStream(void* /*stream*/) {
    return Status(StatusCode::kInvalidArgument, Description() + " has no streams");
  }
};

}  // namespace kuiper
