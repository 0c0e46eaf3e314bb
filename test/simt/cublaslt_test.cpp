// Prefill products with cuBLASLt, as far as they can be tested without a GPU: the chosen algorithm,
// the arguments passed to the library, and the effects of a refusal.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "cublaslt_stub.h"
#include "kuiper/kernels/cuda/gemm_library.h"
#include "test/model/model_files.h"
#include "test/ops/ops_test_util.h"

namespace kuiper::test {
namespace {

constexpr Device kSimt = {DeviceType::kSimt, 0};
constexpr size_t kWorkspace = size_t{32} << 20;  // maximum

// y = x W^T for prefill rows.
struct Product {
  int n = 40, k = 72, tokens = 9;
  DType type = DType::kF16, out_type = DType::kF32;
  int out_stride = 40, x_stride = 72;
  Epilogue epilogue = Epilogue::kStore;  // kSwiGlu: of two parts with n rows each
};

class CublasLtTest : public testing::Test {
 protected:
  CublasLtTest() {
    setenv("KUIPER_CACHE_DIR", dir_.path().c_str(), 1);
    stub_ = {};
  }
  ~CublasLtTest() override {
    EXPECT_EQ(stub_.num_handles, 0);
    stub_ = {};
    unsetenv("KUIPER_CACHE_DIR");
  }

  static std::unique_ptr<Ops> Make(Determinism determinism = Determinism::kOn, bool tune = false) {
    return MakeTestOps(kSimt, {.determinism = determinism, .tune = tune});
  }

  // Prepares the layer, computes it and compares with a loop.
  std::vector<float> Apply(Ops& ops, const Product& p) {
    const bool paired = p.epilogue == Epilogue::kSwiGlu;
    std::vector<std::vector<float>> weights;
    std::vector<Matrix> matrices;
    Linear linear;
    linear.in = p.k;
    linear.num_parts = paired ? 2 : 1;
    for (int i = 0; i < linear.num_parts; ++i) {
      weights.push_back(Rounded(RandomFloats(size_t{1} * p.n * p.k, 10 + i), p.type));
      matrices.emplace_back(ops, p.type, p.n, p.k, weights.back());
      linear.parts[i].weight = DenseWeight(matrices.back().tensor());
      linear.out += p.n;
    }
    const std::vector<float> x = Rounded(RandomFloats(size_t{1} * p.tokens * p.k, 1), p.type),
                             y = Rounded(RandomFloats(size_t{1} * p.tokens * p.n, 2), p.out_type);
    const auto sum = [&](int token, int part, int column) {
      double s = 0;
      for (int i = 0; i < p.k; ++i)
        s += double{x[token * p.k + i]} * weights[part][column * p.k + i];
      return s;
    };
    std::vector<double> expected;
    for (int t = 0; t < p.tokens; ++t) {
      for (int c = 0; c < p.n; ++c) {
        const double s = sum(t, 0, c);
        expected.push_back(p.epilogue == Epilogue::kAdd ? y[t * p.n + c] + s
                           : paired                     ? s / (1 + std::exp(-s)) * sum(t, 1, c)
                                                        : s);
      }
    }
    const Matrix in(ops, p.type, p.tokens, p.k, x, p.x_stride),
        out(ops, p.out_type, p.tokens, p.n, y, p.out_stride);
    EXPECT_TRUE(ops.Prepare(linear, p.epilogue, p.out_type, p.out_stride).ok());
    stub_.ran.clear();
    ops.Run(ApplyArgs{.out = out.tensor(),
                      .x = in.tensor(),
                      .linear = linear,
                      .epilogue = p.epilogue,
                      .num_decode_rows = 0});
    std::vector<float> result = out.Get();
    ExpectNear(result, expected, (paired ? 2e-5 : 1e-6) * p.k,
               (paired ? 1e-4 : 1e-5) + RoundingError(p.out_type));
    return result;
  }
  // Index among the stub's algorithms of the one that computed the product; -1 for none of them.
  int Chosen(Ops& ops, const Product& p) {
    Apply(ops, p);
    return stub_.ran.empty() ? -1 : stub_.ran.back().first;
  }
  int Chosen(const Product& p, Determinism determinism = Determinism::kOn) {
    return Chosen(*Make(determinism), p);
  }

  const TempDir dir_;
  CublasLtStub& stub_ = TheCublasLtStub();
};
using CublasLtDeathTest = CublasLtTest;

TEST_F(CublasLtTest, IsToldTheProductInEveryPairOfTypes) {
  const auto ops = Make();
  for (const auto& [type, out_type] :
       {std::pair{DType::kF32, DType::kF32}, std::pair{DType::kF16, DType::kF32},
        std::pair{DType::kF16, DType::kF16}, std::pair{DType::kBF16, DType::kF32},
        std::pair{DType::kBF16, DType::kBF16}}) {
    for (const Epilogue epilogue : {Epilogue::kStore, Epilogue::kAdd}) {
      for (const int stride : {40, 64}) {
        Apply(*ops,
              {.type = type, .out_type = out_type, .out_stride = stride, .epilogue = epilogue});
        const std::vector<std::pair<int, StubProduct>> expected = {
            {0, {9, 40, 72, 72, 72, stride, type, out_type, epilogue == Epilogue::kAdd}}};
        EXPECT_EQ(stub_.ran, expected) << DTypeName(type) << " to " << DTypeName(out_type);
      }
    }
  }
}

TEST_F(CublasLtTest, SumsOfPairsLieBehindTheWorkspace) {
  stub_.algorithms[0].workspace = [](const StubProduct&) { return kWorkspace; };
  const auto ops = Make();
  Apply(*ops, {.tokens = 70, .out_type = DType::kF16, .epilogue = Epilogue::kSwiGlu});
  ASSERT_EQ(stub_.ran.size(), 2u);
  EXPECT_EQ(stub_.ran[1].second,
            (StubProduct{70, 40, 72, 72, 72, 80, DType::kF16, DType::kF32, false}));
}

// An algorithm that the library would refuse in a later step must not be chosen at load.
TEST_F(CublasLtTest, ARefusedNumberOfRowsRulesAnAlgorithmOut) {
  stub_.algorithms.resize(2);
  for (const int refused : {1, 37, 511, 512}) {
    stub_.algorithms[0].passes_check = [=](const StubProduct& p) { return p.m != refused; };
    for (const Determinism determinism : {Determinism::kOn, Determinism::kOff}) {
      EXPECT_EQ(Chosen({.tokens = refused}, determinism), 1) << refused;
    }
  }
}

TEST_F(CublasLtTest, ARefusedStrideRulesAnAlgorithmOut) {
  stub_.algorithms.resize(2);
  stub_.algorithms[0].passes_check = [](const StubProduct& p) { return p.out_stride == p.n; };
  EXPECT_EQ(Chosen({.out_stride = 64}), 1);
  EXPECT_EQ(Chosen({.out_stride = 40}), 0);
}

TEST_F(CublasLtTest, ProductsThatFailInTheTrialRuleAnAlgorithmOut) {
  stub_.algorithms.resize(2);
  stub_.algorithms[0].runs = [](const StubProduct& p) { return p.m != 64; };
  EXPECT_EQ(Chosen({}), 1);
  stub_.algorithms[0].runs = [](const StubProduct&) { return false; };
  EXPECT_EQ(Chosen({}, Determinism::kOff), 1);
}

TEST_F(CublasLtTest, WhatSplitsSumsOrDoesNotFitIsLeftOut) {
  stub_.algorithms.resize(4);
  stub_.algorithms[0].split_k = 2;
  stub_.algorithms[1].fits = false;
  stub_.algorithms[2].workspace = [](const StubProduct& p) {
    return p.m == 37 ? kWorkspace + 1 : 0;
  };
  EXPECT_EQ(Chosen({}), 3);
}

TEST_F(CublasLtTest, RowsThatDependOnTheirNumberAreForThoseWhoDoNotCare) {
  stub_.algorithms.resize(2);
  stub_.algorithms[0].piece = [](const StubProduct& p) { return p.m > 64 ? 8 : 32; };
  stub_.algorithms[1].milliseconds = 4;  // choices do not depend on time
  EXPECT_EQ(Chosen({}, Determinism::kOn), 1);
  EXPECT_EQ(Chosen({}, Determinism::kOff), 0);
}

TEST_F(CublasLtTest, OtherKernelsComputeWhatNoAlgorithmTakes) {
  const Product product{.tokens = 21};
  const std::vector<float> strict = Apply(*Make(Determinism::kStrict), product);
  EXPECT_FALSE(SameBits(Apply(*Make(), product), strict)) << "the two are told apart";
  const auto expect_none = [&](const char* what) {
    const auto ops = Make();
    EXPECT_TRUE(SameBits(Apply(*ops, product), strict)) << what;
    EXPECT_TRUE(stub_.ran.empty()) << what;
  };
  stub_.proposes = false;
  expect_none("none for this shape");
  stub_.proposes = true;
  stub_.algorithms.clear();
  expect_none("an empty list");
  stub_.algorithms.resize(1);
  stub_.algorithms[0].split_k = 8;
  expect_none("split sums");
  stub_.algorithms[0] = {};
  stub_.algorithms[0].passes_check = [](const StubProduct& p) { return p.m > 1; };
  expect_none("one row is refused");
  stub_.algorithms[0] = {};
  const auto ops = Make();
  Product apart = product;
  apart.x_stride = 80;
  EXPECT_TRUE(SameBits(Apply(*ops, apart), strict)) << "rows that no trial had";
  EXPECT_TRUE(stub_.ran.empty());
  const int checked = stub_.num_checked;
  apart.out_stride = 42;
  EXPECT_TRUE(SameBits(Apply(*ops, apart), strict)) << "unaligned rows";
  EXPECT_TRUE(stub_.ran.empty());
  EXPECT_EQ(stub_.num_checked, checked);
}

TEST_F(CublasLtTest, NothingIsAskedWhileStepsRun) {
  const auto ops = Make();
  Apply(*ops, {});
  const int checked = stub_.num_checked;
  EXPECT_GE(checked, 512);
  Apply(*ops, {.tokens = 33});
  EXPECT_EQ(stub_.num_checked, checked) << "the shape is known";
}

TEST_F(CublasLtTest, ALibraryThatDoesNotWorkIsToldWithTheWayOut) {
  stub_.works = false;
  const Status status = MakeOps(kSimt, {}).status();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(status.message(), "cuBLASLt cannot be used: CUBLAS_STATUS_NOT_INITIALIZED");
  EXPECT_EQ(status.hint(), "deterministic strict runs without it");
  EXPECT_TRUE(MakeOps(kSimt, {.determinism = Determinism::kStrict}).ok());
}

TEST_F(CublasLtTest, TunedChoicesAreKeptUnderTheNameOfTheLibrary) {
  stub_.algorithms.resize(3);
  stub_.algorithms[0].milliseconds = stub_.algorithms[2].milliseconds = 8;
  EXPECT_EQ(Chosen({}), 0) << "the library's order";
  EXPECT_FALSE(std::filesystem::exists(dir_ / "matrix_products.txt"));
  EXPECT_EQ(Chosen(*Make(Determinism::kOn, true), {}), 1) << "the clock";
  EXPECT_EQ(ReadFile(dir_ / "matrix_products.txt"),
            "kuiper matrix products 1\n1\temulated device, sm_87, 4 SMs, " +
                cuda::OpenGemmLibrary().value()->Name() +
                ", 40 x 72 FP16 to FP32, rows checked, of 3\n");
  stub_.algorithms[0].milliseconds = 0;
  stub_.algorithms[1].milliseconds = 8;
  EXPECT_EQ(Chosen({}), 1) << "the file";
  stub_.algorithms[1].passes_check = [](const StubProduct& p) { return p.m != 3; };
  EXPECT_EQ(Chosen({}), 0) << "a choice that the library takes no more";
}

TEST_F(CublasLtDeathTest, ARefusalInAStepEndsTheProcessWithTheLibrarysWords) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        const auto ops = Make();
        Apply(*ops, {});
        stub_.algorithms[0].runs = [](const StubProduct&) { return false; };
        Apply(*ops, {});
      },
      testing::ExitedWithCode(8),
      "error: cuBLASLt error: cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED");
}

}  // namespace
}  // namespace kuiper::test
