#include <algorithm>
#include <fstream>

#include "kuiper/base/check.h"
#include "kuiper/kernels/cuda/cuda_check.h"
#include "kuiper/kernels/cuda/cuda_ops.h"
#include "kuiper/kernels/cuda/make_cuda_ops.h"

namespace kuiper::KU_GPU {
namespace {

#if defined(KUIPER_SIMT)
constexpr DeviceType kDeviceType = DeviceType::kSimt;
#else
constexpr DeviceType kDeviceType = DeviceType::kCUDA;
#endif

constexpr size_t kAlign = 256;
constexpr int64_t kNumTickets = 8192;

// A graph's launch order is that of the stream, so a replay sees the uploads before it.
class CudaGraph : public CapturedGraph {
 public:
  CudaGraph(int device, cudaGraphExec_t exec, cudaStream_t stream)
      : device_(device), exec_(exec), stream_(stream) {}
  ~CudaGraph() override { KU_CUDA_CHECK(cudaGraphExecDestroy(exec_)); }
  void Replay() override {
    KU_CUDA_CHECK(cudaSetDevice(device_));
    KU_CUDA_CHECK(cudaGraphLaunch(exec_, stream_));
  }

 private:
  int device_;
  cudaGraphExec_t exec_;
  cudaStream_t stream_;
};

// Space for the partial results of about eight sequences of a model with this many features;
// larger batches fill the device without splitting sequences, unless these share keys.
int64_t PartialFloats(const OpsLimits& limits) {
  return int64_t{2} * limits.max_features * NumAttentionSplits(limits.max_context) *
         std::min(limits.max_seqs, limits.cascade ? 64 : 8);
}

size_t SampleBytes(const OpsLimits& limits) {
  return sizeof(float) * limits.max_seqs * static_cast<size_t>(limits.vocab);
}

size_t RoundUp(size_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

std::string Megabytes(size_t bytes) {
  return std::to_string(bytes >> 20) + " MB";
}

// MemAvailable of the machine; 0 when it cannot be told.
size_t AvailableHostMemory() {
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    if (line.rfind("MemAvailable:", 0) == 0) {
      return static_cast<size_t>(std::strtoull(line.c_str() + 13, nullptr, 10)) * 1024;
    }
  }
  return 0;
}

Status Unavailable(std::string message) {
  return Status(StatusCode::kUnavailable, std::move(message), "--device cpu runs without one");
}

// What kind of device it is: "NVIDIA H200, sm_90, 132 SMs".
std::string ModelOf(const cudaDeviceProp& properties) {
  return std::string(properties.name) + ", sm_" + std::to_string(properties.major) +
         std::to_string(properties.minor) + ", " + std::to_string(properties.multiProcessorCount) +
         " SMs";
}

// Whether kernels for this device are in the program: asks for the attributes of one.
__global__ void ProbeKernel() {}

cudaError_t Probe() {
  cudaFuncAttributes attributes{};
  return cudaFuncGetAttributes(&attributes, ProbeKernel);
}

// Why there is no device, in the driver's words where it has some.
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

// The compiler lists them as 870, 900.
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

StatusOr<std::unique_ptr<Ops>> MakeCudaOps(Device device, const OpsOptions& options) {
  return CudaOps::Make(device, options);
}

StatusOr<std::unique_ptr<Ops>> CudaOps::Make(Device device, const OpsOptions& options) {
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
  if (error == cudaSuccess) error = Probe();
  // Which of the two it is depends on the version of the runtime.
  if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction) {
    const std::string sm = std::to_string(properties.major) + std::to_string(properties.minor);
    return Status(
        StatusCode::kUnavailable,
        "this build has kernels for " + CompiledSms() + " but the device is sm_" + sm,
        "build with -DCMAKE_CUDA_ARCHITECTURES=" + sm + "\n--device cpu runs without a device");
  }
  if (error != cudaSuccess) {
    return Unavailable(DeviceName(device) + " cannot be used: " + cudaGetErrorString(error));
  }
  std::unique_ptr<CudaOps> ops(new CudaOps(device, options, properties));
  error = cudaStreamCreateWithFlags(&ops->stream_, cudaStreamNonBlocking);
  if (error != cudaSuccess) {
    return Unavailable(DeviceName(device) + " cannot be used: " + cudaGetErrorString(error));
  }
  for (cudaEvent_t& event : ops->events_) {
    KU_CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  }
  PrepareAttentionMma();
  if (options.determinism != Determinism::kStrict) {
    KU_ASSIGN_OR_RETURN(DenseGemm gemm, DenseGemm::Make(options, ModelOf(properties)));
    ops->dense_ = std::make_unique<DenseLinear>(std::move(gemm));
  }
  KU_ASSIGN_OR_RETURN(ops->tickets_, ops->Allocate(kNumTickets * sizeof(int32_t)));
  KU_CUDA_CHECK(cudaMemsetAsync(ops->tickets_.data(), 0, ops->tickets_.bytes(), ops->stream_));
  ops->attention_scratch_.tickets = static_cast<int32_t*>(ops->tickets_.data());
  ops->attention_scratch_.num_tickets = kNumTickets;
  return std::unique_ptr<Ops>(std::move(ops));
}

CudaOps::CudaOps(Device device, const OpsOptions& options, const cudaDeviceProp& properties)
    : device_(device),
      attention_(options.attention),
      determinism_(options.determinism),
      description_(DeviceName(device) + " (" + ModelOf(properties) + ")"),
      num_sms_(properties.multiProcessorCount),
      integrated_(properties.integrated != 0) {
  KU_CHECK(device.type == kDeviceType);
}

CudaOps::~CudaOps() {
  if (stream_ == nullptr) return;
  KU_CUDA_CHECK(cudaStreamSynchronize(Enter()));
  for (const cudaEvent_t event : events_) {
    if (event != nullptr) KU_CUDA_CHECK(cudaEventDestroy(event));
  }
  KU_CUDA_CHECK(cudaStreamDestroy(stream_));
}

std::string CudaOps::Description() const {
  return description_;
}

cudaStream_t CudaOps::Enter() const {
  KU_CUDA_CHECK(cudaSetDevice(device_.index));
  return stream_;
}

StatusOr<Buffer> CudaOps::Allocate(size_t bytes) {
  KU_CHECK(!capturing_, "a recorded step consists of ops only");
  if (bytes == 0) return Buffer();
  Enter();
  void* data = nullptr;
  if (cudaMalloc(&data, bytes) != cudaSuccess) {
    (void)cudaGetLastError();  // not sticky
    return Status(StatusCode::kResourceExhausted, "cannot allocate " + Megabytes(bytes) + " on " +
                                                      DeviceName(device_) + ": " +
                                                      Megabytes(FreeBytes()) + " is available");
  }
  return Buffer(data, bytes, device_, [](void* p, size_t) { KU_CUDA_CHECK(cudaFree(p)); });
}

StatusOr<Buffer> CudaOps::AllocatePinned(size_t bytes) {
  KU_CHECK(!capturing_, "a recorded step consists of ops only");
  if (bytes == 0) return Buffer();
  Enter();
  void* data = nullptr;
  if (cudaMallocHost(&data, bytes) != cudaSuccess) {
    (void)cudaGetLastError();
    return Status(StatusCode::kResourceExhausted,
                  "cannot allocate " + Megabytes(bytes) + " of pinned memory");
  }
  return Buffer(data, bytes, Device{}, [](void* p, size_t) { KU_CUDA_CHECK(cudaFreeHost(p)); });
}

size_t CudaOps::FreeBytes() const {
  Enter();
  size_t free = 0, total = 0;
  KU_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  if (!integrated_) return free;
  // cudaMemGetInfo of an integrated GPU leaves out what the page cache would give back.
  return std::min(total, std::max(free, AvailableHostMemory()));
}

size_t CudaOps::ScratchBytes(const OpsLimits& limits) const {
  const size_t dense = determinism_ == Determinism::kStrict ? 0 : DenseLinear::ScratchBytes(limits);
  return RoundUp(PartialFloats(limits) * sizeof(float)) + RoundUp(SampleBytes(limits)) + dense;
}

Status CudaOps::Reserve(const OpsLimits& limits) {
  limits_.max_tokens = std::max(limits_.max_tokens, limits.max_tokens);
  limits_.max_seqs = std::max(limits_.max_seqs, limits.max_seqs);
  limits_.max_features = std::max(limits_.max_features, limits.max_features);
  limits_.max_context = std::max(limits_.max_context, limits.max_context);
  limits_.vocab = std::max(limits_.vocab, limits.vocab);
  limits_.cascade = limits_.cascade || limits.cascade;
  const size_t bytes = ScratchBytes(limits_);
  if (bytes > scratch_.bytes()) {
    Sync();
    scratch_ = Buffer();  // both do not have to fit
    KU_ASSIGN_OR_RETURN(scratch_, Allocate(bytes));
  }
  attention_scratch_.partials = static_cast<float*>(scratch_.data());
  attention_scratch_.num_partials = PartialFloats(limits_);
  char* next = static_cast<char*>(scratch_.data()) +
               RoundUp(static_cast<size_t>(attention_scratch_.num_partials) * sizeof(float));
  sample_scratch_ = reinterpret_cast<float*>(next);
  if (dense_ != nullptr) dense_->SetScratch(next + RoundUp(SampleBytes(limits_)), limits_);
  return OkStatus();
}

void CudaOps::Copy(Tensor dst, Tensor src, cudaMemcpyKind kind) {
  KU_CHECK(!capturing_, "a recorded step consists of ops only");
  KU_CHECK(dst.bytes() == src.bytes() && dst.is_dense() && src.is_dense());
  if (dst.numel() == 0) return;
  KU_CUDA_CHECK(
      cudaMemcpyAsync(dst.data, src.data, static_cast<size_t>(dst.bytes()), kind, Enter()));
}

void CudaOps::Upload(Tensor dst, Tensor src) {
  Copy(dst, src, cudaMemcpyHostToDevice);
}

void CudaOps::Download(Tensor dst, Tensor src) {
  Copy(dst, src, cudaMemcpyDeviceToHost);
}

void CudaOps::Sync() {
  KU_CHECK(!capturing_, "a recorded step consists of ops only");
  KU_CUDA_CHECK(cudaStreamSynchronize(Enter()));
}

int64_t CudaOps::Mark() {
  KU_CHECK(!capturing_, "a recorded step consists of ops only");
  const int64_t mark = num_marks_++;
  KU_CUDA_CHECK(cudaEventRecord(events_[mark % events_.size()], Enter()));
  return mark;
}

void CudaOps::WaitFor(int64_t mark) {
  KU_CHECK(!capturing_ && mark >= 0 && mark < num_marks_);
  Enter();
  KU_CUDA_CHECK(cudaEventSynchronize(events_[mark % events_.size()]));
}

StatusOr<std::unique_ptr<CapturedGraph>> CudaOps::Capture(const std::function<void()>& body) {
  KU_CHECK(!capturing_, "Capture inside Capture");
  const cudaStream_t stream = Enter();
  const auto failed = [](cudaError_t error) {
    (void)cudaGetLastError();
    return Status(StatusCode::kInternal,
                  std::string("cannot record a CUDA graph: ") + cudaGetErrorString(error));
  };
  cudaError_t error = cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal);
  if (error != cudaSuccess) return failed(error);
  capturing_ = true;
  body();
  capturing_ = false;
  cudaGraph_t graph = nullptr;
  error = cudaStreamEndCapture(stream, &graph);
  if (error != cudaSuccess) return failed(error);
  cudaGraphExec_t exec = nullptr;
  error = cudaGraphInstantiate(&exec, graph, 0);
  KU_CUDA_CHECK(cudaGraphDestroy(graph));
  if (error != cudaSuccess) return failed(error);
  std::unique_ptr<CapturedGraph> captured(new CudaGraph(device_.index, exec, stream));
  captured->Replay();  // recording runs nothing
  return StatusOr<std::unique_ptr<CapturedGraph>>(std::move(captured));
}

void CudaOps::DoEmbed(Tensor out, Tensor table, Tensor ids, Tensor sampled) {
  KU_GPU::Embed(Enter(), out, table, ids, sampled);
}

void CudaOps::DoFillRandom(Tensor out, uint64_t seed) {
  KU_GPU::FillRandom(Enter(), out, seed);
}

void CudaOps::DoGatherRows(Tensor out, Tensor x, Tensor rows) {
  KU_GPU::Embed(Enter(), out, x, rows, Tensor());
}

void CudaOps::DoRmsNorm(Tensor out, Tensor x, Tensor weight, float eps) {
  KU_GPU::RmsNorm(Enter(), out, x, weight, eps);
}

Status CudaOps::Prepare(const Linear& w, Epilogue epilogue, DType out_type) {
  KU_CHECK(!capturing_, "a recorded step consists of ops only");
  if (dense_ == nullptr) return OkStatus();
  return dense_->Prepare(Enter(), *this, w, epilogue, out_type);
}

void CudaOps::DoApply(Tensor out, Tensor x, const Linear& w, Epilogue epilogue,
                      int num_decode_rows) {
  const int64_t rows = x.rows(), decodes = std::min<int64_t>(rows, num_decode_rows);
  const cudaStream_t stream = Enter();
  if (decodes == rows || dense_ == nullptr || !dense_->Takes(out, x, w, epilogue)) {
    return KU_GPU::Apply(stream, out, x, w, epilogue);
  }
  if (decodes > 0) {
    KU_GPU::Apply(stream, out.Rows(0, decodes), x.Rows(0, decodes), w, epilogue);
  }
  dense_->Apply(stream, out.Rows(decodes, rows), x.Rows(decodes, rows), w, epilogue);
}

void CudaOps::DoQkNormRopeStore(Tensor q, Tensor k, Tensor v, Tensor q_norm, Tensor k_norm,
                                float eps, const RopeTable& rope, Tensor positions,
                                const KvView& kv, Tensor slots) {
  KU_GPU::QkNormRopeStore(Enter(), q, k, v, q_norm, k_norm, eps, rope, positions, kv, slots);
}

void CudaOps::DoStoreKv(const KvView& kv, Tensor k, Tensor v, Tensor slots) {
  KU_GPU::StoreKv(Enter(), kv, k, v, slots);
}

void CudaOps::DoCopyPages(const KvView& kv, Tensor copies) {
  KU_GPU::CopyPages(Enter(), kv, copies);
}

void CudaOps::DoAttention(Tensor out, Tensor q, const KvView& kv, const AttnMeta& meta, float scale,
                          const AttnOptions& options) {
  KU_CHECK(meta.max_kv_len <= limits_.max_context, "more than was reserved");
  const AttentionArgs args{out, q, kv, meta, scale, options};
  if (attention_ == AttentionKind::kMha || kv.s.head_dim > kMaxHeadDim) {
    KU_GPU::AttentionMha(Enter(), args);
  } else if (attention_ == AttentionKind::kFlash2 && KU_GPU::CanAttentionMma(args)) {
    KU_GPU::AttentionMma(Enter(), attention_scratch_, num_sms_, args);
  } else {
    KU_GPU::AttentionFlash(Enter(), attention_scratch_, num_sms_, args);
  }
}

void CudaOps::DoSample(Tensor tokens, Tensor logits, const SampleArgs& args) {
  KU_CHECK(args.vocab_limit <= limits_.vocab && logits.rows() <= limits_.max_seqs,
           "more than was reserved");
  KU_GPU::Sample(Enter(), sample_scratch_, tokens, logits, args);
}

}  // namespace kuiper::KU_GPU
