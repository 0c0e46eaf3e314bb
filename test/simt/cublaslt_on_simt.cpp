// Gives the emulated device cuBLASLt in place of its own products.
#include <utility>

#include "cublaslt_stub.h"
#include "emulator/runtime_state.h"
#include "kuiper/kernels/cuda/gemm_library.h"

namespace kuiper {

StatusOr<std::unique_ptr<GemmLibrary>> simt_gpu::OpenGemmLibrary() {
  return cuda::OpenGemmLibrary();
}

void test::QueueOnStream(void* stream, std::function<void()> work) {
  simt::Queue(static_cast<simt::Stream*>(stream), std::move(work));
}

}  // namespace kuiper
