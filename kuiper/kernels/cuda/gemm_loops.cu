// The GemmLibrary of the emulated device: one algorithm, in which one thread per output sums along
// K in ascending order. Empty for GPUs.
#if defined(KUIPER_SIMT)

#include "kuiper/kernels/cuda/gemm_library.h"
#include "kuiper/kernels/cuda/launch.h"
#include "kuiper/kernels/cuda/matrix_arg.h"

namespace kuiper::KU_GPU {
namespace {

__global__ void GemmKernel(MatrixArg out, MatrixArg x, MatrixArg weight, int n, int k, bool add) {
  AwaitEarlierKernels();
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

class GemmLoops final : public GemmLibrary {
 public:
  std::string Name() const override { return "plain loops"; }
  size_t WorkspaceBytes() const override { return 0; }
  std::vector<GemmAlgorithm> Propose(const GemmArgs&) const override { return {GemmAlgorithm{}}; }
  bool Supports(const GemmAlgorithm&, const GemmArgs&) const override { return true; }
  bool NeedsTrial() const override { return false; }
  Status Multiply(const GemmAlgorithm&, const GemmArgs& args, void*, void* stream) const override {
    constexpr int kThreads = 64;
    const int n = static_cast<int>(args.out.shape[1]);
    const dim3 grid(static_cast<unsigned>(args.x.rows()),
                    static_cast<unsigned>(CeilDiv(n, kThreads)));
    KU_CUDA_TRY(::kuiper::simt::LaunchLibraryKernel<GemmKernel>(
        {grid, dim3(kThreads), 0}, static_cast<cudaStream_t>(stream), AsArg(args.out),
        AsArg(args.x), AsArg(args.weight), n, static_cast<int>(args.x.shape[1]), args.add));
    return OkStatus();
  }
};

}  // namespace

StatusOr<std::unique_ptr<GemmLibrary>> OpenGemmLibrary() {
  return std::unique_ptr<GemmLibrary>(new GemmLoops);
}

}  // namespace kuiper::KU_GPU

#endif
