// CopyPages: one launch with one block per run (the K or V of one head and layer) and copy. Threads
// move 16 bytes if runs are aligned, otherwise single elements. Each byte is read and written once:
// a few pages are bound by the launch, whole rows by DRAM.
#include "kuiper/kernels/common/visit.h"
#include "kuiper/kernels/cuda/kernels.h"
#include "kuiper/kernels/cuda/launch.h"

namespace kuiper::KU_GPU {
namespace {

constexpr int kThreads = 128;

// copies [C, 3]: from, to, tokens. 16-byte chunks come first; single elements may remain at a run's
// end. Unrolling would only cost registers: the compiler must assume that a store changes what the
// next load reads, so each load waits anyway.
template <typename View>
__global__ void __launch_bounds__(kThreads)
    CopyPagesKernel(const int32_t* copies, bool vectors, const __grid_constant__ View view) {
  using Unit = typename View::Unit;
  constexpr int kPerVector = 16 / sizeof(Unit);
  AwaitEarlierKernels();
  const int32_t* copy = copies + int64_t{3} * blockIdx.y;
  const int64_t run = blockIdx.x;
  const Unit* from = view.Run(copy[0], run);
  Unit* to = view.Run(copy[1], run);
#pragma unroll
  for (int p = 0; p < View::kRunParts; ++p) {
    const auto part = view.PartOfRun(p, copy[2]);
    const Unit* const source = from + part.begin;
    Unit* const target = to + part.begin;
    const int64_t num_vectors = vectors ? part.size / kPerVector : 0;
#pragma unroll 1
    for (int64_t i = threadIdx.x; i < num_vectors; i += kThreads) {
      reinterpret_cast<uint4*>(target)[i] = reinterpret_cast<const uint4*>(source)[i];
    }
#pragma unroll 1
    for (int64_t i = num_vectors * kPerVector + threadIdx.x; i < part.size; i += kThreads) {
      target[i] = source[i];
    }
  }
}

}  // namespace

void Run(const Resources& resources, const CopyPagesArgs& args) {
  const dim3 grid(static_cast<unsigned>(args.kv.runs_per_page()),
                  static_cast<unsigned>(args.copies.rows()));
  // Slabs are separate allocations, so a run is aligned if the runs before it are whole vectors.
  const bool vectors = args.kv.run_bytes() % 16 == 0;
  VisitKv(args.kv, [&](const auto& view) {
    using View = std::remove_cv_t<std::remove_reference_t<decltype(view)>>;
    Launch<CopyPagesKernel<View>>(grid, dim3(kThreads), 0, resources.stream,
                                  static_cast<const int32_t*>(args.copies.data), vectors, view);
  });
}

}  // namespace kuiper::KU_GPU
