#include <algorithm>

#include "kuiper/base/check.h"
#include "kuiper/kernels/cuda/cuda_check.h"
#include "kuiper/kernels/cuda/cuda_ops.h"
#include "kuiper/kernels/cuda/make_cuda_ops.h"

namespace kuiper::KU_GPU {
namespace {

constexpr size_t kAlign = 256;
constexpr int64_t kNumTickets = 8192;

// Space for the partial results of about eight sequences of a model with this many features. Larger
// batches fill the device without splitting sequences, unless sequences share keys.
int64_t PartialFloats(const OpsLimits& limits) {
  return int64_t{2} * limits.max_features * NumAttentionSplits(limits.max_context) *
         std::min(limits.max_seqs, limits.cascade ? 64 : 8);
}

size_t SampleBytes(const OpsLimits& limits) {
  return sizeof(float) * limits.max_seqs * static_cast<size_t>(SampleRowFloats(limits.vocab));
}

size_t RoundUp(size_t bytes) {
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

}  // namespace

StatusOr<std::unique_ptr<Ops>> MakeCudaOps(Device device, const OpsOptions& options) {
  return CudaOps::Make(device, options);
}

StatusOr<std::unique_ptr<Ops>> CudaOps::Make(Device id, const OpsOptions& options) {
  KU_ASSIGN_OR_RETURN(std::unique_ptr<CudaDevice> device, CudaDevice::Open(id));
  std::unique_ptr<CudaOps> ops(new CudaOps(std::move(device), options));
  PrepareAttentionMma();
  if (options.determinism != Determinism::kStrict) {
    KU_ASSIGN_OR_RETURN(std::unique_ptr<GemmLibrary> library, OpenGemmLibrary());
    ops->dense_ = std::make_unique<DenseLinear>(
        DenseGemm(std::move(library), options, ops->device_->model()));
    ops->resources_.dense = ops->dense_.get();
  }
  KU_ASSIGN_OR_RETURN(ops->tickets_, ops->device_->Allocate(kNumTickets * sizeof(int32_t)));
  KU_CUDA_CHECK(
      cudaMemsetAsync(ops->tickets_.data(), 0, ops->tickets_.bytes(), ops->resources_.stream));
  ops->resources_.tickets = static_cast<int32_t*>(ops->tickets_.data());
  ops->resources_.num_tickets = kNumTickets;
  return std::unique_ptr<Ops>(std::move(ops));
}

CudaOps::CudaOps(std::unique_ptr<CudaDevice> device, const OpsOptions& options)
    : Ops(*device), device_(std::move(device)) {
  resources_.stream = device_->Enter();
  resources_.num_sms = device_->num_sms();
  resources_.sm_shared_bytes = device_->sm_shared_bytes();
  resources_.attention = options.attention;
}

// Kernels may still use the scratch memory. A caller's stream may no longer exist, but freeing
// memory waits for the work of that stream.
CudaOps::~CudaOps() {
  device_->UseOwnStream();
  (void)device_->TrySync();  // fails after a fault
}

size_t CudaOps::ScratchBytes(const OpsLimits& limits) const {
  return RoundUp(PartialFloats(limits) * sizeof(float)) + RoundUp(SampleBytes(limits)) +
         (dense_ == nullptr ? 0 : dense_->ScratchBytes(limits));
}

Status CudaOps::Reserve(const OpsLimits& limits) {
  OpsLimits all = resources_.limits;
  all.Include(limits);
  const size_t bytes = ScratchBytes(all);
  if (bytes > scratch_.bytes() && device_->num_graphs() > 0) {
    return Status(StatusCode::kInvalidArgument,
                  "recorded steps use the scratch memory, which would have to grow",
                  "reserve the largest limits before the first step is recorded");
  }
  resources_.limits = all;
  if (bytes > scratch_.bytes()) {
    device_->Sync();
    scratch_ = Buffer();  // release first: the two need not fit together
    KU_ASSIGN_OR_RETURN(scratch_, device_->Allocate(bytes));
  }
  char* next = static_cast<char*>(scratch_.data());
  resources_.partials = reinterpret_cast<float*>(next);
  resources_.num_partials = PartialFloats(all);
  next += RoundUp(static_cast<size_t>(resources_.num_partials) * sizeof(float));
  resources_.sample_rows = reinterpret_cast<float*>(next);
  if (dense_ != nullptr) dense_->SetScratch(next + RoundUp(SampleBytes(all)), all);
  return OkStatus();
}

Status CudaOps::Prepare(const Linear& linear, Epilogue epilogue, DType out_type,
                        int64_t out_stride) {
  KU_CHECK(!device_->is_capturing(), "a recorded step consists of ops only");
  if (dense_ == nullptr) return OkStatus();
  return dense_->Prepare(device_->Enter(), *this, linear, epilogue, out_type, out_stride);
}

}  // namespace kuiper::KU_GPU
