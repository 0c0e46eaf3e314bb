// The contract of every backend apart from numbers: argument checks, capture and replay,
// allocation, unavailable devices.
#include "ops_test_util.h"

namespace kuiper::test {
namespace {

class ContractTest : public OpsTest {
 protected:
  const std::unique_ptr<Ops> ops_ = MakeTestOps(GetParam());
};
KU_INSTANTIATE_OPS_TEST(ContractTest);

using ContractDeathTest = ContractTest;
KU_INSTANTIATE_OPS_TEST(ContractDeathTest);

TEST_P(ContractDeathTest, WrongArgumentsEndTheProcessAndNameTheOp) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const Matrix x(*ops_, DType::kF32, 2, 8), out(*ops_, DType::kF32, 2, 8);
  const Matrix narrow(*ops_, DType::kF32, 2, 7), w(*ops_, DType::kF32, 1, 8);
  const Matrix short_w(*ops_, DType::kF32, 1, 7);
  const Array<int32_t> ids(*ops_, {0, 1}), rows(*ops_, {0, 9});
  const auto exits = ::testing::ExitedWithCode(1);
  EXPECT_EXIT(ops_->Run(RmsNormArgs{
                  .out = narrow.tensor(), .x = x.tensor(), .weight = w.vector(), .eps = 1e-6f}),
              exits, "RmsNorm: unexpected out");
  EXPECT_EXIT(ops_->Run(RmsNormArgs{
                  .out = out.tensor(), .x = x.tensor(), .weight = short_w.vector(), .eps = 1e-6f}),
              exits, "RmsNorm: unexpected weight");
  EXPECT_EXIT(ops_->Run(RmsNormArgs{
                  .out = out.tensor(), .x = Tensor(), .weight = w.vector(), .eps = 1e-6f}),
              exits, "unexpected x");
  EXPECT_EXIT(ops_->Run(EmbedArgs{.out = out.tensor(), .table = x.tensor(), .ids = w.vector()}),
              exits, "Embed: unexpected ids");
  Linear linear;
  linear.in = 8;
  linear.out = 2;
  linear.num_parts = 1;
  linear.parts[0].weight = DenseWeight(x.tensor());
  EXPECT_EXIT(ops_->Run(ApplyArgs{.out = out.tensor(), .x = x.tensor(), .linear = linear}), exits,
              "Apply: x, out and the weight");
  EXPECT_EXIT(ops_->Run(ApplyArgs{.out = out.tensor().Cols(0, 1),
                                  .x = x.tensor(),
                                  .linear = linear,
                                  .epilogue = Epilogue::kSwiGlu}),
              exits, "gate and up differ");
  Tensor elsewhere = x.tensor();
  elsewhere.device = {DeviceType::kCUDA, 3};
  EXPECT_EXIT(ops_->Run(GatherRowsArgs{.out = out.tensor(), .x = elsewhere, .rows = ids.tensor()}),
              exits, "on cuda:3");
}

TEST_P(ContractDeathTest, WrongArgumentsOfTheCacheAndOfSamplingEndTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto exits = ::testing::ExitedWithCode(1);
  const Matrix x(*ops_, DType::kF32, 2, 8), narrow(*ops_, DType::kF32, 2, 6);
  const Array<int32_t> ids(*ops_, {0, 1}), three(*ops_, {0, 1, 2});
  EXPECT_EXIT(ops_->Run(FillRandomArgs{.out = ids.tensor()}), exits, "FillRandom: out is not");

  const Array<int64_t> slabs(*ops_, {0});
  KvView kv;
  kv.kv_heads = 2;
  kv.slabs = static_cast<void* const*>(slabs.tensor().data);
  kv.SetPages(1, 4, 1, 0);
  const StoreKvArgs store{.kv = kv, .k = x.tensor(), .v = x.tensor(), .slots = ids.tensor()};
  StoreKvArgs wrong = store;
  wrong.kv.slabs = nullptr;
  EXPECT_EXIT(ops_->Run(wrong), exits, "StoreKv: malformed KV view");
  wrong = store;
  wrong.k = narrow.tensor();
  EXPECT_EXIT(ops_->Run(wrong), exits, "StoreKv: k and the cache differ");
  wrong = store;
  wrong.slots = three.tensor();
  EXPECT_EXIT(ops_->Run(wrong), exits, "StoreKv: unexpected slots");

  const Matrix table(*ops_, DType::kF32, 3, 4), norm(*ops_, DType::kF32, 1, 4);
  const Array<int32_t> axes(*ops_, {0, 0}), positions(*ops_, {0, 1}, 1);
  QkNormRopeStoreArgs rope{.q = x.tensor(),
                           .store = store,
                           .rope = {table.tensor(), axes.tensor()},
                           .positions = positions.matrix()};
  rope.q_norm = norm.vector();
  EXPECT_EXIT(ops_->Run(rope), exits, "QkNormRopeStore: one of q_norm and k_norm is missing");
  rope.q_norm = {};
  rope.positions = ids.tensor();
  EXPECT_EXIT(ops_->Run(rope), exits, "QkNormRopeStore: positions is not");

  const Array<uint8_t> rows(*ops_, std::vector<uint8_t>(2 * sizeof(SampleRow)));
  SampleArgs sample{
      .tokens = ids.tensor(), .logits = x.tensor(), .rows = rows.tensor(), .vocab_limit = 9};
  EXPECT_EXIT(ops_->Run(sample), exits, "Sample: vocab_limit is not in");
  sample.vocab_limit = 8;
  sample.rows = ids.tensor();
  EXPECT_EXIT(ops_->Run(sample), exits, "Sample: unexpected rows");
}

TEST_P(ContractDeathTest, IdsOutsideTheirTableEndTheProcess) {
  if (GetParam().type != DeviceType::kCPU) GTEST_SKIP() << "checked on the CPU only";
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const Matrix x(*ops_, DType::kF32, 2, 8), out(*ops_, DType::kF32, 2, 8);
  const Array<int32_t> rows(*ops_, {0, 2});
  const auto exits = ::testing::ExitedWithCode(1);
  EXPECT_EXIT(
      ops_->Run(GatherRowsArgs{.out = out.tensor(), .x = x.tensor(), .rows = rows.tensor()}), exits,
      "outside");
  EXPECT_EXIT(ops_->Run(EmbedArgs{.out = out.tensor(), .table = x.tensor(), .ids = rows.tensor()}),
              exits, "outside");
}

TEST_P(ContractTest, NoRowsIsNoWork) {
  const Matrix x(*ops_, DType::kF32, 2, 8);
  const Tensor none = Tensor::Dense(nullptr, DType::kF32, {0, 8}, GetParam());
  const Tensor no_rows = Tensor::Dense(nullptr, DType::kI32, {0}, GetParam());
  ops_->Run(GatherRowsArgs{.out = none, .x = x.tensor(), .rows = no_rows});
}

TEST_P(ContractTest, ReplayReadsMemoryAgainAndFreezesScalars) {
  Matrix x(*ops_, DType::kF32, 1, 4, {1, 2, 3, 4});
  const Matrix out(*ops_, DType::kF32, 1, 4);
  const Matrix w(*ops_, DType::kF32, 1, 4, {1, 2, 3, 5}), norm(*ops_, DType::kF32, 1, 4);
  float eps = 0.0f;
  auto graph = ops_->device().Capture([&] {
    ops_->Run(RmsNormArgs{.out = norm.tensor(), .x = x.tensor(), .weight = w.vector(), .eps = eps});
    ops_->Run(
        RmsNormArgs{.out = out.tensor(), .x = norm.tensor(), .weight = w.vector(), .eps = eps});
  });
  ASSERT_TRUE(graph.ok()) << graph.status().message();
  const std::vector<float> executed = out.Get();
  EXPECT_FALSE(std::isnan(executed[0])) << "the body runs while it is recorded";

  eps = 1e6f;  // the captured value is 0
  x.Set({-2, 1, 5, 1});
  ops_->Run(RmsNormArgs{.out = out.tensor(),
                        .x = x.tensor(),
                        .weight = w.vector(),
                        .eps = 0.0f});  // not part of the captured graph
  (*graph)->Replay();
  const std::vector<float> replayed = out.Get();
  ops_->Run(RmsNormArgs{.out = norm.tensor(), .x = x.tensor(), .weight = w.vector(), .eps = 0.0f});
  ops_->Run(
      RmsNormArgs{.out = out.tensor(), .x = norm.tensor(), .weight = w.vector(), .eps = 0.0f});
  EXPECT_TRUE(SameBits(replayed, out.Get()));
  EXPECT_FALSE(SameBits(replayed, executed));
}

TEST_P(ContractTest, AllocatesAndRefuses) {
  auto small = ops_->device().Allocate(1);
  ASSERT_TRUE(small.ok());
  EXPECT_FALSE(small->empty());
  EXPECT_TRUE(ops_->device().Allocate(0).ok());
  auto pinned = ops_->device().AllocatePinned(1000);
  ASSERT_TRUE(pinned.ok());
  std::memset(pinned->data(), 1, 1000);
  EXPECT_GT(ops_->device().FreeBytes(), size_t{1} << 20);
  const auto huge = ops_->device().Allocate(size_t{1} << 60);
  ASSERT_FALSE(huge.ok());
  EXPECT_EQ(huge.status().code(), StatusCode::kResourceExhausted);
}

TEST_P(ContractTest, DescribesItself) {
  EXPECT_EQ(
      ops_->device().Description().rfind(GetParam().type == DeviceType::kCPU ? "cpu (" : "", 0),
      0u);
  EXPECT_GT(ops_->ScratchBytes(TestLimits()), size_t{200000} * 4);
}

TEST(TokenRefTest, IsAnIdOrARow) {
  for (const int32_t n : {0, 1, 151935, std::numeric_limits<int32_t>::max()}) {
    EXPECT_TRUE(TokenRef::Known(n).is_known());
    EXPECT_EQ(TokenRef::Known(n).id(), n);
    EXPECT_FALSE(TokenRef::Sampled(n).is_known());
    EXPECT_EQ(TokenRef::Sampled(n).row(), n);
    EXPECT_NE(TokenRef::Known(n), TokenRef::Sampled(n));
  }
  EXPECT_EQ(TokenRef(), TokenRef::Known(0));
}

TEST(OpsLimitsTest, IncludeGrowsToHoldBoth) {
  OpsLimits limits{.max_tokens = 1, .max_seqs = 7, .max_features = 3, .vocab = 9};
  limits.Include({.max_tokens = 4, .max_seqs = 2, .max_context = 5, .cascade = true});
  EXPECT_EQ(limits.max_tokens, 4);
  EXPECT_EQ(limits.max_seqs, 7);
  EXPECT_EQ(limits.max_features, 3);
  EXPECT_EQ(limits.max_context, 5);
  EXPECT_EQ(limits.vocab, 9);
  EXPECT_TRUE(limits.cascade);
}

TEST(MakeOps, SaysWhichDevicesAreMissing) {
  if (CompiledDevices().find("), ") != std::string::npos) {
    GTEST_SKIP() << "this build has " << CompiledDevices();
  }
  for (DeviceType type : {DeviceType::kCUDA, DeviceType::kSimt}) {
    const auto ops = MakeOps({type, 0}, {});
    ASSERT_FALSE(ops.ok());
    EXPECT_EQ(ops.status().code(), StatusCode::kUnavailable);
    EXPECT_EQ(ops.status().hint(), "device cpu runs without one");
  }
}

}  // namespace
}  // namespace kuiper::test
