// DenseGemm by cuBLASLt. The library sees the row-major matrices as column-major ones, y^T = W x^T.
// Algorithms that split K among blocks are left out; within the others the order of a sum is a
// matter of the tile, which RowsKeepTheirBits checks, because the library promises nothing.
#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/base/check.h"
#include "kuiper/base/clock.h"
#include "kuiper/kernels/cuda/dense_gemm.h"
#include "kuiper/kernels/cuda/gemm_choice.h"
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

StatusOr<DenseGemm> DenseGemm::Make(const OpsOptions&, const std::string&) {
  return DenseGemm(std::make_unique<Library>());
}

StatusOr<std::unique_ptr<DenseGemm::Algorithm>> DenseGemm::Choose(cudaStream_t, Ops&, const Tensor&,
                                                                  const GemmShape&, int) const {
  return std::make_unique<Algorithm>();
}

void DenseGemm::Run(cudaStream_t stream, const GemmArgs& args) const {
  constexpr int kThreads = 64;
  const int n = static_cast<int>(args.out.shape[1]);
  const dim3 grid(static_cast<unsigned>(args.x.rows()),
                  static_cast<unsigned>(CeilDiv(n, kThreads)));
  CheckLaunch(::kuiper::simt::LaunchLibraryKernel<GemmKernel>(
      {grid, dim3(kThreads), 0}, stream, AsArg(args.out), AsArg(args.x), AsArg(args.weight), n,
      static_cast<int>(args.x.shape[1]), args.add));
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

// A product as the library describes it.
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

// Wraps the library's type, which has no name: nvcc 13.0 fails on a vector of it.
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

// The name of a product in the file of choices.
std::string NameOf(const GemmShape& shape) {
  return std::to_string(shape.n) + " x " + std::to_string(shape.k) + ' ' + DTypeName(shape.type) +
         " to " + DTypeName(shape.out_type) + (shape.add ? " added" : "") +
         (shape.stride == shape.n ? "" : " in rows of " + std::to_string(shape.stride));
}

// Proposals for one product, tried on all its rows.
class Trial {
 public:
  Trial(cublasLtHandle_t handle, void* workspace, cudaStream_t stream, const GemmArgs& args)
      : handle_(handle), workspace_(workspace), stream_(stream), args_(args) {}

  // Whether it computes rows [first, first + count) as a product of their own; leaves them in
  // rows [0, count) of the output.
  bool Runs(const Proposal& proposal, int first, int count) const {
    const GemmArgs some{args_.out.Rows(0, count), args_.x.Rows(first, first + count), args_.weight,
                        args_.add};
    return Multiply(handle_, proposal.algorithm, workspace_, stream_, some) ==
           CUBLAS_STATUS_SUCCESS;
  }

  // Whether the library takes it for each number of rows; it computes nothing.
  bool TakesAllRows(const Proposal& proposal) const {
    const int64_t rows = args_.x.rows();
    for (int64_t count = 1; count <= rows; ++count) {
      Problem p({args_.out.Rows(0, count), args_.x.Rows(0, count), args_.weight, args_.add});
      cublasLtMatmulHeuristicResult_t result;
      if (cublasLtMatmulAlgoCheck(handle_, &p.desc, &p.a, &p.b, &p.c, &p.c, &proposal.algorithm,
                                  &result) != CUBLAS_STATUS_SUCCESS ||
          result.state != CUBLAS_STATUS_SUCCESS ||
          result.workspaceSize > DenseGemm::kWorkspaceBytes) {
        return false;
      }
    }
    return true;
  }

  bool KeepsRows(const Proposal& proposal) const {
    const int rows = static_cast<int>(args_.x.rows());
    const size_t row_bytes = DTypeBytes(args_.out.dtype) * static_cast<size_t>(args_.out.stride[0]);
    bool runs = true;
    const auto product = [&](int first, int count) {
      std::vector<char> result(row_bytes * count);
      KU_CUDA_CHECK(cudaMemsetAsync(args_.out.data, 0, result.size(), stream_));
      runs = runs && Runs(proposal, first, count);
      KU_CUDA_CHECK(cudaStreamSynchronize(stream_));
      KU_CUDA_CHECK(
          cudaMemcpy(result.data(), args_.out.data, result.size(), cudaMemcpyDeviceToHost));
      return result;
    };
    return RowsKeepTheirBits(rows, row_bytes, product) && runs;
  }

  // How long a product of `rows` rows takes: the best of three series.
  double Seconds(const Proposal& proposal, int rows) const {
    constexpr int kProducts = 5;
    double best = std::numeric_limits<double>::infinity();
    for (int series = 0; series < 3; ++series) {
      KU_CUDA_CHECK(cudaStreamSynchronize(stream_));
      const Clock::time_point begin = Clock::now();
      for (int i = 0; i < kProducts; ++i) {
        if (!Runs(proposal, 0, rows)) return std::numeric_limits<double>::infinity();
      }
      KU_CUDA_CHECK(cudaStreamSynchronize(stream_));
      best = std::min(best, SecondsSince(begin) / kProducts);
    }
    return best;
  }

 private:
  cublasLtHandle_t handle_;
  void* workspace_;
  cudaStream_t stream_;
  GemmArgs args_;
};

}  // namespace

struct DenseGemm::Algorithm {
  Proposal proposal;
};

struct DenseGemm::Library {
  cublasLtHandle_t handle = nullptr;
  std::string name;  // of device and library
  bool check_rows = true;
  GemmTiming timing = GemmTiming::kNever;
  GemmChoices choices{GemmChoices::DefaultPath()};

  Library() = default;
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  ~Library() {
    if (handle != nullptr) Check(cublasLtDestroy(handle), "cublasLtDestroy");
  }
};

StatusOr<DenseGemm> DenseGemm::Make(const OpsOptions& options, const std::string& model) {
  auto library = std::make_unique<Library>();
  const cublasStatus_t status = cublasLtCreate(&library->handle);
  if (status != CUBLAS_STATUS_SUCCESS) {
    library->handle = nullptr;
    return Status(StatusCode::kUnavailable,
                  std::string("cuBLASLt cannot be used: ") + cublasLtGetStatusName(status),
                  Param("deterministic") + " strict runs without it");
  }
  library->name = model + ", cuBLASLt " + std::to_string(cublasLtGetVersion());
  library->check_rows = options.determinism == Determinism::kOn;
  if (options.tune) {
    library->timing = GemmTiming::kForTheFile;
  } else if (!library->check_rows) {
    library->timing = GemmTiming::kForThisRun;
  }
  return DenseGemm(std::move(library));
}

StatusOr<std::unique_ptr<DenseGemm::Algorithm>> DenseGemm::Choose(cudaStream_t stream, Ops& memory,
                                                                  const Tensor& weight,
                                                                  const GemmShape& shape,
                                                                  int max_rows) const {
  // Proposed and timed for a chunk of the usual size, whatever the largest step is, so that
  // max_num_batched_tokens does not decide about bits.
  constexpr int kUsualRows = 512;
  const int rows = std::max(max_rows, kUsualRows);
  const size_t x_bytes = DTypeBytes(shape.type) * shape.k * static_cast<size_t>(rows);
  const size_t y_bytes = DTypeBytes(shape.out_type) * shape.stride * static_cast<size_t>(rows);
  KU_ASSIGN_OR_RETURN(const Buffer x_memory, memory.device().Allocate(x_bytes));
  KU_ASSIGN_OR_RETURN(const Buffer y_memory, memory.device().Allocate(y_bytes));
  const GemmArgs all{y_memory.As(shape.out_type, {rows, shape.stride}).Cols(0, shape.n),
                     x_memory.As(shape.type, {rows, shape.k}), weight, shape.add};
  const std::vector<Proposal> proposals = Proposals(
      library_->handle, {all.out.Rows(0, kUsualRows), all.x.Rows(0, kUsualRows), weight, all.add});
  memory.Run(FillRandomArgs{.out = all.x});
  const Trial trial(library_->handle, workspace_, stream, all);
  GemmCandidates candidates;
  candidates.count = static_cast<int>(proposals.size());
  candidates.key = library_->name + ", " + NameOf(shape) +
                   (library_->check_rows ? ", rows checked" : "") + ", of " +
                   std::to_string(candidates.count);
  candidates.usable = [&](int i) {
    return trial.TakesAllRows(proposals[i]) &&
           (library_->check_rows ? trial.KeepsRows(proposals[i])
                                 : trial.Runs(proposals[i], 0, rows));
  };
  candidates.seconds = [&](int i) { return trial.Seconds(proposals[i], kUsualRows); };
  const std::optional<int> choice = ChooseGemm(candidates, library_->timing, library_->choices);
  KU_CUDA_CHECK(cudaStreamSynchronize(stream));  // before the memory goes
  if (!choice.has_value()) return std::unique_ptr<Algorithm>();
  return std::make_unique<Algorithm>(proposals[*choice]);
}

void DenseGemm::Run(cudaStream_t stream, const GemmArgs& args) const {
  const Algorithm& chosen = *algorithms_.at(ShapeOf(args.weight, args.out, args.add));
  Check(Multiply(library_->handle, chosen.proposal.algorithm, workspace_, stream, args),
        "cublasLtMatmul");
}

#endif

DenseGemm::DenseGemm(std::unique_ptr<Library> library) : library_(std::move(library)) {}
DenseGemm::DenseGemm(DenseGemm&&) noexcept = default;
DenseGemm::~DenseGemm() = default;

Status DenseGemm::Prepare(cudaStream_t stream, Ops& memory, const Tensor& weight,
                          const GemmShape& shape, int max_rows) {
  if (algorithms_.contains(shape)) return OkStatus();
  KU_ASSIGN_OR_RETURN(algorithms_[shape], Choose(stream, memory, weight, shape, max_rows));
  return OkStatus();
}

bool DenseGemm::Has(const GemmShape& shape) const {
  const auto known = algorithms_.find(shape);
  return known != algorithms_.end() && known->second != nullptr;
}

}  // namespace kuiper::KU_GPU
