#include <algorithm>
#include <utility>
#include <vector>

#include "kuiper/base/check.h"
#include "kuiper/base/text.h"
#include "kuiper/kernels/cuda/cuda_check.h"
#include "kuiper/kernels/cuda/cuda_device.h"
#include "kuiper/kernels/cuda/kernels.h"
#include "kuiper/kernels/cuda/launch.h"
#include "kuiper/kernels/cuda/make_cuda_ops.h"

namespace kuiper::KU_GPU {
namespace {

#if defined(KUIPER_SIMT)
constexpr DeviceType kDeviceType = DeviceType::kSimt;
#else
constexpr DeviceType kDeviceType = DeviceType::kCUDA;
#endif

// Graphs are launched in stream order, so a replay uses the uploads enqueued before it.
class CudaGraph : public CapturedGraph {
 public:
  // Counts itself in num_graphs while it exists.
  CudaGraph(const CudaDevice& device, cudaGraphExec_t exec, int* num_graphs)
      : device_(device), exec_(exec), num_graphs_(*num_graphs) {
    ++num_graphs_;
  }
  ~CudaGraph() override {
    (void)cudaGraphExecDestroy(exec_);  // fails after a fault
    --num_graphs_;
  }
  void Replay() override { KU_CUDA_TRY(cudaGraphLaunch(exec_, device_.Enter())); }

 private:
  const CudaDevice& device_;
  cudaGraphExec_t exec_;
  int& num_graphs_;
};

Status Unavailable(std::string message) {
  return Status(StatusCode::kUnavailable, std::move(message),
                Param("device") + " cpu runs without one");
}

Status Refused(StatusCode code, const std::string& what, cudaError_t error) {
  (void)cudaGetLastError();  // clears the error, which is not sticky
  return Status(code, what + ": " + cudaGetErrorString(error));
}

// Lets this thread allocate and free memory while it captures a stream; the capture ignores these
// calls. This is the purpose of CUDA's relaxed mode; verified only on the emulated device.
class RelaxedCaptureMode {
 public:
  RelaxedCaptureMode() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCaptureMode() { (void)cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCaptureMode(const RelaxedCaptureMode&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// After a fault nothing can be freed; waiting for the device then reports the fault.
void CheckFreed(cudaError_t error) {
  KU_CHECK(error != cudaErrorInvalidValue, "freed memory was not allocated");
}

// Returns name and size of the device: "NVIDIA H200, sm_90, 132 SMs".
std::string ModelOf(const cudaDeviceProp& properties) {
  return std::string(properties.name) + ", sm_" + std::to_string(properties.major) +
         std::to_string(properties.minor) + ", " + std::to_string(properties.multiProcessorCount) +
         " SMs";
}

// Returns the reason why no device is usable, as the driver states it if possible.
Status NoDevice(cudaError_t error) {
  int driver = 0;
  if (error == cudaErrorInsufficientDriver && cudaDriverGetVersion(&driver) == cudaSuccess &&
      driver > 0) {
    return Unavailable("no usable CUDA device: the driver (CUDA " + std::to_string(driver / 1000) +
                       "." + std::to_string(driver % 1000 / 10) +
                       ") is older than this build's CUDA toolkit");
  }
  std::string reason = std::string("driver reports: ") + cudaGetErrorString(error);
  if (error == cudaSuccess) reason = "none present";
  if (error == cudaErrorInsufficientDriver) reason = "no NVIDIA driver is installed";
  return Unavailable("no CUDA device found (" + reason + ")");
}

}  // namespace

// The compiler lists architectures as 870, 900.
std::string CompiledSms() {
#if defined(KUIPER_SIMT)
  constexpr int kArchitectures[] = {870};
#else
  constexpr int kArchitectures[] = {__CUDA_ARCH_LIST__};
#endif
  std::string text;
  for (const int architecture : kArchitectures) {
    text += (text.empty() ? "sm_" : ", sm_") + std::to_string(architecture / 10);
  }
  return text;
}

namespace {

// Returns the driver's properties of a device, if this build has kernels for it.
StatusOr<cudaDeviceProp> FindDevice(Device device) {
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) return NoDevice(error);
  if (device.index < 0 || device.index >= count) {
    return Unavailable("no device " + DeviceName(device) + ": this machine has " +
                       std::to_string(count) + (count == 1 ? " CUDA device" : " CUDA devices"));
  }
  cudaDeviceProp properties{};
  error = cudaSetDevice(device.index);
  if (error == cudaSuccess) error = cudaGetDeviceProperties(&properties, device.index);
  if (error == cudaSuccess) error = ProbeKernels();
  // The runtime's version determines which of the two errors is returned.
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction) {
    const std::string sm = std::to_string(properties.major) + std::to_string(properties.minor);
    return Status(StatusCode::kUnavailable,
                  "this build has kernels for " + CompiledSms() + " but the device is sm_" + sm,
                  "build with -DCMAKE_CUDA_ARCHITECTURES=" + sm + "\n" + Param("device") +
                      " cpu runs without a device");
  }
  if (error != cudaSuccess) {
    return Unavailable(DeviceName(device) + " cannot be used: " + cudaGetErrorString(error));
  }
  return properties;
}

}  // namespace

int NumDevices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

bool IsUsable(Device device) {
  return FindDevice(device).ok();
}

StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Open(Device device) {
  KU_ASSIGN_OR_RETURN(const cudaDeviceProp properties, FindDevice(device));
  std::unique_ptr<CudaDevice> opened(new CudaDevice(device, properties));
  const cudaError_t error = cudaStreamCreateWithFlags(&opened->own_stream_, cudaStreamNonBlocking);
  if (error != cudaSuccess) {
    return Unavailable(DeviceName(device) + " cannot be used: " + cudaGetErrorString(error));
  }
  opened->UseOwnStream();
  // On an integrated GPU, polling by the host would take power from the GPU.
  const unsigned sleeps = opened->integrated_ ? cudaEventBlockingSync : 0u;
  for (cudaEvent_t& event : opened->events_) {
    KU_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | sleeps));
  }
  return StatusOr<std::unique_ptr<CudaDevice>>(std::move(opened));
}

CudaDevice::CudaDevice(Device id, const cudaDeviceProp& properties)
    : id_(id),
      model_(ModelOf(properties)),
      num_sms_(properties.multiProcessorCount),
      sm_shared_bytes_(properties.sharedMemPerMultiprocessor),
      integrated_(properties.integrated != 0) {
  KU_CHECK(id.type == kDeviceType);
}

CudaDevice::~CudaDevice() {
  if (own_stream_ == nullptr) return;
  UseOwnStream();
  // Destroying fails after a fault.
  (void)TrySync();
  for (const cudaEvent_t event : events_) {
    if (event != nullptr) (void)cudaEventDestroy(event);
  }
  (void)cudaStreamDestroy(own_stream_);
}

std::string CudaDevice::Description() const {
  return DeviceName(id_) + " (" + model_ + ")";
}

DeviceTraits CudaDevice::traits() const {
  return {.unified_memory = integrated_,
          .is_asynchronous = true,
          .pass_rows = kPassRows,
          .graph_bytes = size_t{2} << 20};  // CUDA allocates memory of graph nodes in units of this
}

cudaStream_t CudaDevice::Enter() const {
  KU_CUDA_TRY(cudaSetDevice(id_.index));
  return stream_;
}

StatusOr<Buffer> CudaDevice::Allocate(size_t bytes) {
  KU_CHECK(!capturing_, "a recorded step consists of ops only");
  if (bytes == 0) return Buffer();
  const RelaxedCaptureMode relaxed_capture_mode;
  void* data = nullptr;
  const cudaError_t error = FirstError([&] {
    Enter();
    KU_CUDA_TRY(cudaMalloc(&data, bytes));
  });
  const std::string what = "cannot allocate " + Megabytes(bytes) + " on " + DeviceName(id_);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // clears the error, which is not sticky
    return Status(StatusCode::kResourceExhausted,
                  what + ": " + Megabytes(FreeBytes()) + " is available");
  }
  if (error != cudaSuccess) return Refused(StatusCode::kUnavailable, what, error);
  return Buffer(data, bytes, id_, [](void* p, size_t) {
    const RelaxedCaptureMode relaxed_capture_mode;
    CheckFreed(cudaFree(p));
  });
}

StatusOr<Buffer> CudaDevice::AllocatePinned(size_t bytes) {
  KU_CHECK(!capturing_, "a recorded step consists of ops only");
  if (bytes == 0) return Buffer();
  const RelaxedCaptureMode relaxed_capture_mode;
  void* data = nullptr;
  const cudaError_t error = FirstError([&] {
    Enter();
    KU_CUDA_TRY(cudaMallocHost(&data, bytes));
  });
  if (error != cudaSuccess) {
    return Refused(error == cudaErrorMemoryAllocation ? StatusCode::kResourceExhausted
                                                      : StatusCode::kUnavailable,
                   "cannot allocate " + Megabytes(bytes) + " of pinned memory", error);
  }
  return Buffer(data, bytes, Device{}, [](void* p, size_t) {
    const RelaxedCaptureMode relaxed_capture_mode;
    CheckFreed(cudaFreeHost(p));
  });
}

size_t CudaDevice::FreeBytes() const {
  Enter();
  size_t free = 0, total = 0;
  KU_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  if (!integrated_) return free;
  // On an integrated GPU, cudaMemGetInfo does not count memory that the page cache could release.
  return std::min(total,
                  std::max(free, 1024 * ReadKey("/proc/meminfo", "MemAvailable:").value_or(0)));
}

void CudaDevice::Copy(Tensor dst, Tensor src, cudaMemcpyKind kind) {
  KU_CHECK(!capturing_, "a recorded step consists of ops only");
  KU_CHECK(dst.bytes() == src.bytes() && dst.is_dense() && src.is_dense());
  if (dst.numel() == 0) return;
  KU_CUDA_TRY(cudaMemcpyAsync(dst.data, src.data, static_cast<size_t>(dst.bytes()), kind, Enter()));
}

void CudaDevice::Upload(Tensor dst, Tensor src) {
  Copy(dst, src, cudaMemcpyHostToDevice);
}

void CudaDevice::Download(Tensor dst, Tensor src) {
  Copy(dst, src, cudaMemcpyDeviceToHost);
}

void CudaDevice::Sync() {
  KU_CHECK(!capturing_, "a recorded step consists of ops only");
  KU_CUDA_TRY(cudaStreamSynchronize(Enter()));
}

Status CudaDevice::TrySync() {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  cudaError_t error = FirstError([&] { KU_CUDA_TRY(cudaStreamIsCapturing(Enter(), &capture)); });
  // The default stream cannot be captured, and some captures forbid waiting for it.
  if (capturing_ || capture != cudaStreamCaptureStatusNone ||
      error == cudaErrorStreamCaptureImplicit) {
    (void)cudaGetLastError();
    return Status(StatusCode::kInvalidArgument,
                  "the stream is being captured, and nothing runs before the capture ends",
                  "call this before the capture begins, or after a replay");
  }
  if (error == cudaSuccess) error = FirstError([this] { Sync(); });
  if (error == cudaSuccess) return OkStatus();
  return Refused(StatusCode::kUnavailable, "cannot wait for " + DeviceName(id_), error);
}

int64_t CudaDevice::Mark() {
  KU_CHECK(!capturing_, "a recorded step consists of ops only");
  const int64_t mark = num_marks_++;
  KU_CUDA_CHECK(cudaEventRecord(events_[mark % events_.size()], Enter()));
  return mark;
}

void CudaDevice::WaitFor(int64_t mark) {
  KU_CHECK(!capturing_ && mark >= 0 && mark < num_marks_);
  Enter();
  KU_CUDA_CHECK(cudaEventSynchronize(events_[mark % events_.size()]));
}

namespace {

// Uses two events per interval and reuses them once the device has passed them.
class EventTimer : public WorkTimer {
 public:
  explicit EventTimer(const CudaDevice& device) : device_(device) {}
  ~EventTimer() override {
    device_.Enter();
    for (const std::vector<Stretch>& list : {running_, spare_}) {
      for (const Stretch& stretch : list) {
        KU_CUDA_CHECK(cudaEventDestroy(stretch.begin));
        KU_CUDA_CHECK(cudaEventDestroy(stretch.end));
      }
    }
  }
  EventTimer(const EventTimer&) = delete;

  void Begin() override {
    const cudaStream_t stream = device_.Enter();
    while (!running_.empty() && cudaEventQuery(running_.front().end) == cudaSuccess) TakeOldest();
    if (spare_.empty()) {
      Stretch made;
      for (cudaEvent_t* event : {&made.begin, &made.end}) {
        KU_CUDA_CHECK(cudaEventCreateWithFlags(event, cudaEventBlockingSync));
      }
      spare_.push_back(made);
    }
    running_.push_back(spare_.back());
    spare_.pop_back();
    KU_CUDA_CHECK(cudaEventRecord(running_.back().begin, stream));
  }
  void End() override { KU_CUDA_CHECK(cudaEventRecord(running_.back().end, device_.Enter())); }
  double Milliseconds() override {
    device_.Enter();
    while (!running_.empty()) {
      KU_CUDA_CHECK(cudaEventSynchronize(running_.front().end));
      TakeOldest();
    }
    return milliseconds_;
  }

 private:
  struct Stretch {
    cudaEvent_t begin = nullptr, end = nullptr;
  };
  void TakeOldest() {
    float milliseconds = 0;
    KU_CUDA_CHECK(
        cudaEventElapsedTime(&milliseconds, running_.front().begin, running_.front().end));
    milliseconds_ += milliseconds;
    spare_.push_back(running_.front());
    running_.erase(running_.begin());
  }

  const CudaDevice& device_;
  std::vector<Stretch> running_, spare_;  // intervals, oldest first
  double milliseconds_ = 0;
};

}  // namespace

std::unique_ptr<WorkTimer> CudaDevice::MakeTimer() {
  return std::make_unique<EventTimer>(*this);
}

Status CudaDevice::SetStream(void* stream) {
  KU_CHECK(!capturing_, "a recorded step consists of ops only");
  stream_ = static_cast<cudaStream_t>(stream);
  return OkStatus();
}

Status CudaDevice::Enqueue(const std::function<void()>& body) {
  const cudaError_t error = FirstError(body);
  if (error == cudaSuccess) return OkStatus();
  return Refused(StatusCode::kInternal, "cannot start a kernel or a copy", error);
}

StatusOr<std::unique_ptr<CapturedGraph>> CudaDevice::Capture(const std::function<void()>& body) {
  KU_CHECK(!capturing_, "Capture inside Capture");
  const cudaStream_t stream = Enter();
  const auto failed = [](cudaError_t error) {
    return Refused(StatusCode::kInternal, "cannot record a CUDA graph", error);
  };
  cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  if (error != cudaSuccess) return failed(error);
  capturing_ = true;
  const cudaError_t launch_error = FirstError(body);
  capturing_ = false;
  cudaGraph_t graph = nullptr;
  error = cudaStreamEndCapture(stream, &graph);
  if (launch_error != cudaSuccess) {
    if (graph != nullptr) KU_CUDA_CHECK(cudaGraphDestroy(graph));
    return failed(launch_error);
  }
  if (error != cudaSuccess) return failed(error);
  cudaGraphExec_t exec = nullptr;
  error = cudaGraphInstantiate(&exec, graph, 0);
  KU_CUDA_CHECK(cudaGraphDestroy(graph));
  if (error != cudaSuccess) return failed(error);
  std::unique_ptr<CapturedGraph> captured(new CudaGraph(*this, exec, &num_graphs_));
  captured->Replay();  // capturing runs nothing
  return StatusOr<std::unique_ptr<CapturedGraph>>(std::move(captured));
}

}  // namespace kuiper::KU_GPU
