// DenseGemm by cuBLASLt. The library sees the row-major matrices as column-major ones, y^T = W x^T.
// Algorithms that split K among blocks are left out; within the others the order of a sum is a
// matter of the tile, which RowsKeepTheirBits checks, because the library promises nothing.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/base/check.h"
#include "kuiper/base/half.h"
#include "kuiper/kernels/cuda/dense_gemm.h"
#include "kuiper/kernels/cuda/launch.h"
#include "kuiper/kernels/cuda/matrix_arg.h"
#include "kuiper/kernels/cuda/row_check.h"

#if !defined(KUIPER_SIMT)
#include <cublasLt.h>
#endif

namespace kuiper::KU_GPU {
#if defined(KUIPER_SIMT)

namespace {

// A thread per output.
__global__ void GemmKernel(MatrixArg out, MatrixArg x, MatrixArg weight, int n, int k, bool add) {
  const int token = static_cast<int>(blockIdx.x);
  const int column = static_cast<int>(blockIdx.y * blockDim.x + threadIdx.x);
  if (column >= n) return;
  float sum = 0;
  for (int i = 0; i < k; ++i) {
    const float w = LoadAny(weight.Row(column), weight.dtype, i);
    sum = fmaf(LoadAny(x.Row(token), x.dtype, i), w, sum);
  }
  if (add) sum += LoadAny(out.Row(token), out.dtype, column);
  StoreAny(out.Row(token), out.dtype, column, sum);
}

}  // namespace

struct DenseGemm::Algorithm {};
struct DenseGemm::Library {};

DenseGemm::DenseGemm(bool check_rows) : check_rows_(check_rows) {}

StatusOr<std::unique_ptr<DenseGemm::Algorithm>> DenseGemm::Choose(cudaStream_t, Ops&, const Tensor&,
                                                                  const GemmShape&, int) const {
  return std::make_unique<Algorithm>();
}

void DenseGemm::Run(cudaStream_t stream, const GemmArgs& args) const {
  constexpr int kThreads = 64;
  const int n = static_cast<int>(args.out.shape[1]);
  const dim3 grid(static_cast<unsigned>(args.x.rows()),
                  static_cast<unsigned>(CeilDiv(n, kThreads)));
  Launch(GemmKernel, grid, dim3(kThreads), 0, stream, AsArg(args.out), AsArg(args.x),
         AsArg(args.weight), n, static_cast<int>(args.x.shape[1]), args.add);
}

#else

namespace {

void Check(cublasStatus_t status, const char* call) {
  if (status == CUBLAS_STATUS_SUCCESS) [[likely]]
    return;
  Fatal(kDeviceExitCode,
        std::string("cuBLASLt error: ") + call + ": " + cublasLtGetStatusName(status));
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

// What a product is to the library.
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

// Has a name, which the library's type has not: nvcc 13.0 fails on a vector of that.
struct Proposal {
  cublasLtMatmulAlgo_t algorithm;
};

// The library's proposals, those it expects to be fastest first.
std::vector<Proposal> Proposals(cublasLtHandle_t handle, const GemmArgs& args) {
  cublasLtMatmulPreferenceOpaque_t preference;
  Check(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
  Prefer(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, DenseGemm::kWorkspaceBytes);
  Prefer(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         static_cast<uint32_t>(CUBLASLT_REDUCTION_SCHEME_NONE));
  for (const auto name :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    Prefer(&preference, name, uint32_t{16});
  }
  Problem p(args);
  cublasLtMatmulHeuristicResult_t found[16];
  int count = 0;
  std::vector<Proposal> proposals;
  if (cublasLtMatmulAlgoGetHeuristic(handle, &p.desc, &p.a, &p.b, &p.c, &p.c, &preference, 16,
                                     found, &count) != CUBLAS_STATUS_SUCCESS) {
    return proposals;  // none for this shape
  }
  for (int i = 0; i < count; ++i) {
    int32_t split = 0;
    if (found[i].state == CUBLAS_STATUS_SUCCESS &&
        cublasLtMatmulAlgoConfigGetAttribute(&found[i].algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                             &split, sizeof(split),
                                             nullptr) == CUBLAS_STATUS_SUCCESS &&
        split <= 1) {
      proposals.push_back({found[i].algo});
    }
  }
  return proposals;
}

cublasStatus_t Multiply(cublasLtHandle_t handle, const cublasLtMatmulAlgo_t& algorithm,
                        void* workspace, cudaStream_t stream, const GemmArgs& args) {
  Problem p(args);
  const float alpha = 1, beta = args.add ? 1.0f : 0.0f;
  return cublasLtMatmul(handle, &p.desc, &alpha, args.weight.data, &p.a, args.x.data, &p.b, &beta,
                        args.out.data, &p.c, args.out.data, &p.c, &algorithm, workspace,
                        DenseGemm::kWorkspaceBytes, stream);
}

// Values in [-1, 1) in a type of floats, of a linear congruential generator.
std::vector<char> RandomBytes(size_t count, DType dtype) {
  uint32_t state = 1;
  std::vector<char> bytes(count * DTypeBytes(dtype));
  for (size_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    const float x = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
    char* p = bytes.data() + i * DTypeBytes(dtype);
    if (dtype == DType::kF32) {
      std::memcpy(p, &x, sizeof(x));
    } else {
      const uint16_t bits = dtype == DType::kF16 ? ToHalf(x).bits : ToBFloat16(x).bits;
      std::memcpy(p, &bits, sizeof(bits));
    }
  }
  return bytes;
}

}  // namespace

struct DenseGemm::Algorithm {
  Proposal proposal;
};

struct DenseGemm::Library {
  cublasLtHandle_t handle = nullptr;
  Library() { Check(cublasLtCreate(&handle), "cublasLtCreate"); }
  ~Library() { Check(cublasLtDestroy(handle), "cublasLtDestroy"); }
};

DenseGemm::DenseGemm(bool check_rows)
    : check_rows_(check_rows), library_(std::make_unique<Library>()) {}

StatusOr<std::unique_ptr<DenseGemm::Algorithm>> DenseGemm::Choose(cudaStream_t stream, Ops& memory,
                                                                  const Tensor& weight,
                                                                  const GemmShape& shape,
                                                                  int max_rows) const {
  const size_t x_bytes = DTypeBytes(shape.type) * shape.k * static_cast<size_t>(max_rows);
  const size_t row_bytes = DTypeBytes(shape.out_type) * shape.n;
  KU_ASSIGN_OR_RETURN(const Buffer x_memory, memory.Allocate(x_bytes));
  KU_ASSIGN_OR_RETURN(const Buffer y_memory, memory.Allocate(row_bytes * max_rows));
  const Tensor x = x_memory.As(shape.type, {max_rows, shape.k});
  const Tensor y = y_memory.As(shape.out_type, {max_rows, shape.n});
  const std::vector<char> values = RandomBytes(static_cast<size_t>(x.numel()), shape.type);
  KU_CUDA_CHECK(cudaMemcpy(x.data, values.data(), x_bytes, cudaMemcpyHostToDevice));
  for (const Proposal& proposal : Proposals(library_->handle, {y, x, weight, shape.add})) {
    bool runs = true;
    const auto product = [&](int first, int count) {
      const GemmArgs args{y.Rows(0, count), x.Rows(first, first + count), weight, shape.add};
      KU_CUDA_CHECK(cudaMemsetAsync(y.data, 0, row_bytes * count, stream));
      runs = runs && Multiply(library_->handle, proposal.algorithm, workspace_, stream, args) ==
                         CUBLAS_STATUS_SUCCESS;
      KU_CUDA_CHECK(cudaStreamSynchronize(stream));
      std::vector<char> rows(row_bytes * count);
      KU_CUDA_CHECK(cudaMemcpy(rows.data(), y.data, rows.size(), cudaMemcpyDeviceToHost));
      return rows;
    };
    const bool passes = !check_rows_ || RowsKeepTheirBits(max_rows, row_bytes, product);
    if (passes && runs) return std::make_unique<Algorithm>(proposal);
  }
  return std::unique_ptr<Algorithm>();
}

void DenseGemm::Run(cudaStream_t stream, const GemmArgs& args) const {
  const Algorithm& chosen = *algorithms_.at(ShapeOf(args.weight, args.out.dtype, args.add));
  Check(Multiply(library_->handle, chosen.proposal.algorithm, workspace_, stream, args),
        "cublasLtMatmul");
}

#endif

DenseGemm::~DenseGemm() = default;

Status DenseGemm::Prepare(cudaStream_t stream, Ops& memory, const Tensor& weight, DType out_type,
                          bool add, int max_rows) {
  const GemmShape shape = ShapeOf(weight, out_type, add);
  if (algorithms_.contains(shape)) return OkStatus();
  KU_ASSIGN_OR_RETURN(algorithms_[shape], Choose(stream, memory, weight, shape, max_rows));
  return OkStatus();
}

bool DenseGemm::Has(const GemmShape& shape) const {
  const auto known = algorithms_.find(shape);
  return known != algorithms_.end() && known->second != nullptr;
}

}  // namespace kuiper::KU_GPU
