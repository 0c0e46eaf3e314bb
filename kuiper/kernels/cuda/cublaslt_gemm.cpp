// The GemmLibrary of a GPU, cuBLASLt. It treats the row-major matrices as column-major ones: y^T =
// W x^T. This is host code only, so a program built without nvcc may link it, too.
#include <cublasLt.h>

#include <bit>
#include <utility>

#include "kuiper/base/fatal.h"
#include "kuiper/kernels/cuda/gemm_library.h"

namespace kuiper::cuda {
namespace {

constexpr size_t kWorkspaceBytes = size_t{32} << 20;
static_assert(sizeof(GemmAlgorithm) == sizeof(cublasLtMatmulAlgo_t));

std::string ErrorOf(const char* call, cublasStatus_t status) {
  return std::string("cuBLASLt error: ") + call + ": " + cublasLtGetStatusName(status);
}

void Check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) [[unlikely]]
    Fatal(kDeviceExitCode, ErrorOf(call, status));
}

cudaDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kBF16:
      return CUDA_R_16BF;
    default:
      return CUDA_R_32F;
  }
}

// A row-major [rows, cols] matrix.
cublasLtMatrixLayoutOpaque_t LayoutOf(const Tensor& t) {
  cublasLtMatrixLayoutOpaque_t layout;
  Check(cublasLtMatrixLayoutInit(&layout, TypeOf(t.dtype), static_cast<uint64_t>(t.shape[1]),
                                 static_cast<uint64_t>(t.shape[0]), t.stride[0]),
        "cublasLtMatrixLayoutInit");
  return layout;
}

// A product in the library's descriptors. Sums are FP32, never TF32.
struct Problem {
  cublasLtMatmulDescOpaque_t desc;
  cublasLtMatrixLayoutOpaque_t a, b, c;

  explicit Problem(const GemmArgs& args)
      : a(LayoutOf(args.weight)), b(LayoutOf(args.x)), c(LayoutOf(args.out)) {
    Check(cublasLtMatmulDescInit(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescInit");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    Check(cublasLtMatmulDescSetAttribute(&desc, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                         sizeof(transposed)),
          "cublasLtMatmulDescSetAttribute");
  }
};

template <typename T>
void Prefer(cublasLtMatmulPreferenceOpaque_t* preference, cublasLtMatmulPreferenceAttributes_t name,
            T value) {
  Check(cublasLtMatmulPreferenceSetAttribute(preference, name, &value, sizeof(value)),
        "cublasLtMatmulPreferenceSetAttribute");
}

// Excludes splitting K among blocks: then only the tile determines the order of a sum.
cublasLtMatmulPreferenceOpaque_t Preference() {
  cublasLtMatmulPreferenceOpaque_t preference;
  Check(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  Prefer(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, kWorkspaceBytes);
  Prefer(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
  for (const auto name :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    Prefer(&preference, name, uint32_t{16});
  }
  return preference;
}

bool SplitsK(const cublasLtMatmulAlgo_t& algorithm) {
  int32_t split = 0;
  return cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split,
                                              sizeof(split), nullptr) != CUBLAS_STATUS_SUCCESS ||
         split > 1;
}

class CublasLtGemm final : public GemmLibrary {
 public:
  explicit CublasLtGemm(cublasLtHandle_t handle) : handle_(handle) {}
  ~CublasLtGemm() override { Check(cublasLtDestroy(handle_), "cublasLtDestroy"); }
  CublasLtGemm(const CublasLtGemm&) = delete;
  CublasLtGemm& operator=(const CublasLtGemm&) = delete;

  std::string Name() const override { return "cuBLASLt " + std::to_string(cublasLtGetVersion()); }
  size_t WorkspaceBytes() const override { return kWorkspaceBytes; }

  std::vector<GemmAlgorithm> Propose(const GemmArgs& args) const override {
    cublasLtMatmulPreferenceOpaque_t preference = Preference();
    Problem p(args);
    cublasLtMatmulHeuristicResult_t found[16];
    int count = 0;
    std::vector<GemmAlgorithm> proposals;
    if (cublasLtMatmulAlgoGetHeuristic(handle_, &p.desc, &p.a, &p.b, &p.c, &p.c, &preference,
                                       static_cast<int>(std::size(found)), found,
                                       &count) != CUBLAS_STATUS_SUCCESS) {
      return proposals;  // no algorithm for this shape
    }
    for (int i = 0; i < count; ++i) {
      if (found[i].state == CUBLAS_STATUS_SUCCESS && !SplitsK(found[i].algo)) {
        proposals.push_back(std::bit_cast<GemmAlgorithm>(found[i].algo));
      }
    }
    return proposals;
  }

  bool Supports(const GemmAlgorithm& algorithm, const GemmArgs& args) const override {
    Problem p(args);
    const auto config = std::bit_cast<cublasLtMatmulAlgo_t>(algorithm);
    cublasLtMatmulHeuristicResult_t result;
    return cublasLtMatmulAlgoCheck(handle_, &p.desc, &p.a, &p.b, &p.c, &p.c, &config, &result) ==
               CUBLAS_STATUS_SUCCESS &&
           result.state == CUBLAS_STATUS_SUCCESS && result.workspaceSize <= kWorkspaceBytes;
  }

  bool NeedsTrial() const override { return true; }

  Status Multiply(const GemmAlgorithm& algorithm, const GemmArgs& args, void* workspace,
                  void* stream) const override {
    Problem p(args);
    const auto config = std::bit_cast<cublasLtMatmulAlgo_t>(algorithm);
    const float alpha = 1, beta = args.add ? 1.0f : 0.0f;
    const cublasStatus_t status =
        cublasLtMatmul(handle_, &p.desc, &alpha, args.weight.data, &p.a, args.x.data, &p.b, &beta,
                       args.out.data, &p.c, args.out.data, &p.c, &config, workspace,
                       kWorkspaceBytes, static_cast<cudaStream_t>(stream));
    if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
      return OkStatus();
    return Status(StatusCode::kInternal, ErrorOf("cublasLtMatmul", status));
  }

 private:
  cublasLtHandle_t handle_;
};

}  // namespace

StatusOr<std::unique_ptr<GemmLibrary>> OpenGemmLibrary() {
  cublasLtHandle_t handle = nullptr;
  const cublasStatus_t status = cublasLtCreate(&handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return Status(StatusCode::kUnavailable,
                  std::string("cuBLASLt cannot be used: ") + cublasLtGetStatusName(status),
                  Param("deterministic") + " strict runs without it");
  }
  return std::unique_ptr<GemmLibrary>(new CublasLtGemm(handle));
}

}  // namespace kuiper::cuda
