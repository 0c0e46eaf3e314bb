#include "cublaslt_stub.h"

#include <cublasLt.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>

#include "emulator/memory.h"
#include "kuiper/base/half.h"

using kuiper::BFloat16;
using kuiper::DType;
using kuiper::Half;
using kuiper::test::CublasLtStub;
using kuiper::test::StubAlgorithm;
using kuiper::test::StubProduct;
using kuiper::test::TheCublasLtStub;

namespace {

constexpr uint64_t kMark = 0x6b75697065720000;  // marks an algorithm of the stub
constexpr size_t kWorkspaceLimit = size_t{32} << 20;

#define MUST(call) EXPECT_EQ(call, CUBLAS_STATUS_SUCCESS)

template <typename T>
T Get(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t name) {
  T value{};
  size_t written = 0;
  MUST(cublasLtMatrixLayoutGetAttribute(layout, name, &value, sizeof(value), &written));
  EXPECT_EQ(written, sizeof(value));
  return value;
}
template <typename T>
T Get(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name) {
  T value{};
  size_t written = 0;
  MUST(cublasLtMatmulDescGetAttribute(desc, name, &value, sizeof(value), &written));
  EXPECT_EQ(written, sizeof(value));
  return value;
}
template <typename T>
T Get(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t name) {
  T value{};
  size_t written = 0;
  MUST(cublasLtMatmulPreferenceGetAttribute(preference, name, &value, sizeof(value), &written));
  EXPECT_EQ(written, sizeof(value));
  return value;
}

// A column-major [rows, cols] matrix whose columns (rows of the row-major matrix) are `stride`
// elements apart.
struct Layout {
  int64_t rows, cols, stride;
  DType type;
};

Layout Read(cublasLtMatrixLayout_t layout) {
  EXPECT_EQ(Get<int32_t>(layout, CUBLASLT_MATRIX_LAYOUT_ORDER), CUBLASLT_ORDER_COL);
  EXPECT_EQ(Get<int32_t>(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT), 1);
  Layout l{};
  l.rows = static_cast<int64_t>(Get<uint64_t>(layout, CUBLASLT_MATRIX_LAYOUT_ROWS));
  l.cols = static_cast<int64_t>(Get<uint64_t>(layout, CUBLASLT_MATRIX_LAYOUT_COLS));
  l.stride = Get<int64_t>(layout, CUBLASLT_MATRIX_LAYOUT_LD);
  EXPECT_GE(l.stride, l.rows);
  switch (Get<uint32_t>(layout, CUBLASLT_MATRIX_LAYOUT_TYPE)) {
    case CUDA_R_32F:
      l.type = DType::kF32;
      break;
    case CUDA_R_16F:
      l.type = DType::kF16;
      break;
    case CUDA_R_16BF:
      l.type = DType::kBF16;
      break;
    default:
      ADD_FAILURE() << "a type the engine does not have";
  }
  EXPECT_EQ(l.stride * static_cast<int64_t>(DTypeBytes(l.type)) % 16, 0) << "unaligned rows";
  return l;
}

// D = A^T B with FP32 sums, where A is W, B is x and D is y as column-major matrices.
StubProduct Read(cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                 cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
  EXPECT_EQ(Get<int32_t>(desc, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE), CUBLAS_COMPUTE_32F) << "TF32?";
  EXPECT_EQ(Get<int32_t>(desc, CUBLASLT_MATMUL_DESC_SCALE_TYPE), CUDA_R_32F);
  EXPECT_EQ(Get<int32_t>(desc, CUBLASLT_MATMUL_DESC_POINTER_MODE), CUBLASLT_POINTER_MODE_HOST);
  EXPECT_EQ(Get<int32_t>(desc, CUBLASLT_MATMUL_DESC_TRANSA), CUBLAS_OP_T);
  EXPECT_EQ(Get<int32_t>(desc, CUBLASLT_MATMUL_DESC_TRANSB), CUBLAS_OP_N);
  EXPECT_EQ(Get<int32_t>(desc, CUBLASLT_MATMUL_DESC_TRANSC), CUBLAS_OP_N);
  EXPECT_EQ(Get<uint32_t>(desc, CUBLASLT_MATMUL_DESC_EPILOGUE), CUBLASLT_EPILOGUE_DEFAULT);
  const Layout weight = Read(a), x = Read(b), y = Read(c), target = Read(d);
  EXPECT_EQ(weight.rows, x.rows) << "K of W and x";
  EXPECT_EQ(weight.cols, y.rows) << "N";
  EXPECT_EQ(x.cols, y.cols) << "M";
  EXPECT_EQ(weight.type, x.type);
  EXPECT_TRUE(y.type == DType::kF32 || y.type == x.type) << "no kernel writes such a type";
  EXPECT_TRUE(y.rows == target.rows && y.cols == target.cols && y.stride == target.stride &&
              y.type == target.type)
      << "C and D";
  return {x.cols, y.rows, x.rows, x.stride, weight.stride, y.stride, x.type, y.type, false};
}

void CheckPreference(cublasLtMatmulPreference_t p) {
  EXPECT_EQ(Get<uint32_t>(p, CUBLASLT_MATMUL_PREF_SEARCH_MODE), CUBLASLT_SEARCH_BEST_FIT);
  EXPECT_EQ(Get<uint64_t>(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES), kWorkspaceLimit);
  EXPECT_EQ(Get<uint32_t>(p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK),
            CUBLASLT_REDUCTION_SCHEME_NONE);
  for (const auto name :
       {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
    EXPECT_EQ(Get<uint32_t>(p, name), 16u) << "less makes the library slower, more is not so";
  }
}

// Returns the index of an algorithm that the stub proposed.
int IndexOf(const cublasLtMatmulAlgo_t* algorithm) {
  const auto size = TheCublasLtStub().algorithms.size();
  if (algorithm == nullptr || algorithm->data[0] != kMark || algorithm->data[1] >= size) {
    ADD_FAILURE() << "not an algorithm that was proposed";
    return 0;
  }
  return static_cast<int>(algorithm->data[1]);
}

void CheckHandle(cublasLtHandle_t handle) {
  EXPECT_NE(handle, nullptr);
  EXPECT_GT(TheCublasLtStub().num_handles, 0);
}

float Load(const void* p, DType type, int64_t i) {
  switch (type) {
    case DType::kF16:
      return ToFloat(static_cast<const Half*>(p)[i]);
    case DType::kBF16:
      return ToFloat(static_cast<const BFloat16*>(p)[i]);
    default:
      return static_cast<const float*>(p)[i];
  }
}
void Store(void* p, DType type, int64_t i, float x) {
  switch (type) {
    case DType::kF16:
      static_cast<Half*>(p)[i] = kuiper::ToHalf(x);
      break;
    case DType::kBF16:
      static_cast<BFloat16*>(p)[i] = kuiper::ToBFloat16(x);
      break;
    default:
      static_cast<float*>(p)[i] = x;
  }
}

// A [rows, cols] matrix as FP32.
std::vector<float> Widen(const void* p, DType type, int64_t rows, int64_t cols, int64_t stride) {
  std::vector<float> values;
  values.reserve(static_cast<size_t>(rows * cols));
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) values.push_back(Load(p, type, r * stride + c));
  }
  return values;
}

void Compute(const StubProduct& p, int64_t piece, const void* weight, const void* x, void* y) {
  const std::vector<float> w = Widen(weight, p.type, p.n, p.k, p.weight_stride);
  const std::vector<float> rows = Widen(x, p.type, p.m, p.k, p.x_stride);
  for (int64_t m = 0; m < p.m; ++m) {
    for (int64_t n = 0; n < p.n; ++n) {
      const float *a = w.data() + n * p.k, *b = rows.data() + m * p.k;
      float sum = 0;
      for (int64_t begin = 0; begin < p.k; begin += piece) {
        float part = 0;
        for (int64_t i = begin; i < std::min(p.k, begin + piece); ++i) part += a[i] * b[i];
        sum += part;
      }
      const int64_t at = m * p.out_stride + n;
      Store(y, p.out_type, at, p.add ? sum + Load(y, p.out_type, at) : sum);
    }
  }
}

void CheckOperand(const char* what, const void* p, DType type, int64_t rows, int64_t cols,
                  int64_t stride) {
  const auto bytes = static_cast<size_t>((rows - 1) * stride + cols) * DTypeBytes(type);
  EXPECT_TRUE(kuiper::simt::IsMemory(p, bytes, kuiper::simt::MemoryKind::kDevice)) << what;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 16, 0u) << what;
}

}  // namespace

CublasLtStub& kuiper::test::TheCublasLtStub() {
  static CublasLtStub stub = [] {
    CublasLtStub mixed;
    mixed.algorithms.resize(4);
    mixed.algorithms[0].split_k = 2;
    mixed.algorithms[1].piece = [](const StubProduct& p) { return p.m > 16 ? 8 : 16; };
    mixed.algorithms[2].passes_check = [](const StubProduct& p) { return p.m != 13; };
    return mixed;
  }();
  return stub;
}

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  CublasLtStub& stub = TheCublasLtStub();
  if (!stub.works) return CUBLAS_STATUS_NOT_INITIALIZED;
  ++stub.num_handles;
  *handle = reinterpret_cast<cublasLtHandle_t>(&stub);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  CheckHandle(handle);
  --TheCublasLtStub().num_handles;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int room,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int* count) {
  CheckHandle(handle);
  const StubProduct product = Read(desc, a, b, c, d);
  CheckPreference(preference);
  const CublasLtStub& stub = TheCublasLtStub();
  *count = 0;
  if (!stub.proposes) return CUBLAS_STATUS_NOT_SUPPORTED;
  for (const StubAlgorithm& algorithm : stub.algorithms) {
    if (*count == room) break;
    cublasLtMatmulHeuristicResult_t& result = results[*count];
    std::memset(&result, 0xff, sizeof(result));
    result.state = algorithm.fits ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
    if (algorithm.fits) {
      result.algo = {{kMark, static_cast<uint64_t>(*count)}};
      result.workspaceSize = algorithm.workspace(product);
    }
    ++*count;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t* algorithm,
                                                    cublasLtMatmulAlgoConfigAttributes_t name,
                                                    void* value, size_t bytes, size_t* written) {
  const int32_t split = TheCublasLtStub().algorithms[IndexOf(algorithm)].split_k;
  EXPECT_EQ(name, CUBLASLT_ALGO_CONFIG_SPLITK_NUM);
  if (value == nullptr || bytes != sizeof(split)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(value, &split, sizeof(split));
  if (written != nullptr) *written = sizeof(split);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc,
                                       cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  CheckHandle(handle);
  CublasLtStub& stub = TheCublasLtStub();
  const StubProduct product = Read(desc, a, b, c, d);
  const StubAlgorithm& asked = stub.algorithms[IndexOf(algorithm)];
  ++stub.num_checked;
  if (!asked.passes_check(product)) return CUBLAS_STATUS_NOT_SUPPORTED;
  result->state = CUBLAS_STATUS_SUCCESS;
  result->workspaceSize = asked.workspace(product);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* weight, cublasLtMatrixLayout_t a, const void* x,
                              cublasLtMatrixLayout_t b, const void* beta, const void* before,
                              cublasLtMatrixLayout_t c, void* out, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t bytes,
                              cudaStream_t stream) {
  CheckHandle(handle);
  CublasLtStub& stub = TheCublasLtStub();
  StubProduct p = Read(desc, a, b, c, d);
  EXPECT_EQ(*static_cast<const float*>(alpha), 1);
  const float scale = *static_cast<const float*>(beta);
  EXPECT_TRUE(scale == 0 || scale == 1) << scale;
  p.add = scale == 1;
  const int index = IndexOf(algorithm);
  const StubAlgorithm& asked = stub.algorithms[index];
  stub.ran.emplace_back(index, p);
  const size_t used = asked.workspace(p);
  if (!asked.passes_check(p) || !asked.runs(p) || used > bytes) return CUBLAS_STATUS_NOT_SUPPORTED;
  EXPECT_EQ(before, out) << "C and D";
  CheckOperand("W", weight, p.type, p.n, p.k, p.weight_stride);
  CheckOperand("x", x, p.type, p.m, p.k, p.x_stride);
  CheckOperand("y", out, p.out_type, p.m, p.n, p.out_stride);
  EXPECT_EQ(bytes, kWorkspaceLimit);
  EXPECT_TRUE(kuiper::simt::IsMemory(workspace, bytes, kuiper::simt::MemoryKind::kDevice));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(workspace) % 256, 0u);
  const auto work = [p, piece = asked.piece(p), wait = asked.milliseconds, weight, x, out,
                     workspace, used] {
    std::this_thread::sleep_for(std::chrono::milliseconds(wait));
    std::memset(workspace, 0x5a, used);
    Compute(p, piece, weight, x, out);
  };
  kuiper::test::QueueOnStream(stream, work);
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
