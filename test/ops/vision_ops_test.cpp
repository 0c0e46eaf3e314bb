// Compares the additional ops of vision encoders with naive double loops: LayerNorm,
// AddWeightedRows, and the GELUs after a linear layer. Also tests attention whose keys and values
// are in the matrix that the projection wrote.
#include <cmath>
#include <utility>

#include "apply_test_util.h"
#include "cpu_targets.h"
#include "ops_test_util.h"

namespace kuiper::test {
namespace {

class VisionOpsTest : public TypedOpsTest {
 protected:
  const std::unique_ptr<Ops> ops_ = MakeTestOps(device());
  const DType activation_ = ops_->ActivationType(dtype());
  const double rounding_ = RoundingError(activation_);
};
KU_INSTANTIATE_TYPED_OPS_TEST(VisionOpsTest);

// Includes a mean far above the standard deviation.
TEST_P(VisionOpsTest, LayerNormMatchesNaive) {
  constexpr int kRows = 5;
  OnEveryTarget(device(), [&](const std::string& target) {
    for (const int n : {1, 4, 17, 72, 257, 1152, 4608}) {
      for (const float mean : {0.0f, 30.0f}) {
        std::vector<float> x = RandomFloats(kRows * n, n);
        for (float& v : x) v += mean;
        const std::vector<float> w = Rounded(RandomFloats(n, 2), dtype());
        const std::vector<float> b = Rounded(RandomFloats(n, 3), dtype());
        const Matrix mx(*ops_, DType::kF32, kRows, n, x, n + 3);
        const Matrix mw(*ops_, dtype(), 1, n, w), mb(*ops_, dtype(), 1, n, b);
        const Matrix out(*ops_, activation_, kRows, n, n + 1);
        ops_->Run(LayerNormArgs{.out = out.tensor(),
                                .x = mx.tensor(),
                                .weight = mw.vector(),
                                .bias = mb.vector(),
                                .eps = 1e-3f});
        std::vector<double> expected;
        for (int row = 0; row < kRows; ++row) {
          const float* v = x.data() + row * n;
          double sum = 0, squares = 0;
          for (int i = 0; i < n; ++i) sum += v[i];
          for (int i = 0; i < n; ++i) squares += (v[i] - sum / n) * (v[i] - sum / n);
          for (int i = 0; i < n; ++i) {
            expected.push_back((v[i] - sum / n) / std::sqrt(squares / n + 1e-3) * w[i] + b[i]);
          }
        }
        ExpectNear(out.Get(), expected, 2e-5 * (1 + mean), 1e-5 + rounding_,
                   target + " n=" + std::to_string(n));
      }
    }
  });
}

TEST_P(VisionOpsTest, AddWeightedRowsMatchesNaive) {
  constexpr int kRows = 6, kTable = 9;
  OnEveryTarget(device(), [&](const std::string& target) {
    for (const int n : {1, 17, 72, 257, 1152}) {
      for (const int count : {1, 4}) {
        const std::vector<float> table = Rounded(RandomFloats(kTable * n, 4), dtype());
        const std::vector<float> before = RandomFloats(kRows * n, 5);
        const std::vector<float> weights = RandomFloats(kRows * count, 6);
        std::vector<int32_t> rows;
        for (int i = 0; i < kRows * count; ++i) rows.push_back((7 * i + 8) % kTable);
        const Matrix mt(*ops_, dtype(), kTable, n, table, n + 5);
        const Matrix out(*ops_, DType::kF32, kRows, n, before, n + 2);
        const Array<int32_t> indices(*ops_, rows, kRows);
        const Array<float> factors(*ops_, weights, kRows);
        ops_->Run(AddWeightedRowsArgs{.out = out.tensor(),
                                      .table = mt.tensor(),
                                      .rows = indices.matrix(),
                                      .weights = factors.matrix()});
        std::vector<double> expected;
        for (int t = 0; t < kRows; ++t) {
          for (int i = 0; i < n; ++i) {
            double sum = before[t * n + i];
            for (int j = 0; j < count; ++j) {
              sum += double{weights[t * count + j]} * table[rows[t * count + j] * n + i];
            }
            expected.push_back(sum);
          }
        }
        ExpectNear(out.Get(), expected, 5e-6, 1e-6, target + " n=" + std::to_string(n));
      }
    }
  });
}

double Gelu(Epilogue epilogue, double y) {
  if (epilogue == Epilogue::kGeluErf) return 0.5 * y * (1 + std::erf(y / std::sqrt(2.0)));
  return 0.5 * y * (1 + std::tanh(std::sqrt(2 / M_PI) * (y + 0.044715 * y * y * y)));
}

// (outputs, K, T): few tokens and many, rows that no library supports, as decode rows and as
// prefill rows. The result must be the activation of the sums that kStore gives.
TEST_P(VisionOpsTest, GeluFollowsTheSums) {
  const int sizes[][3] = {{1, 8, 1}, {7, 40, 3}, {600, 72, 2}, {37, 136, 6}, {96, 24, 70}};
  for (const Epilogue epilogue : {Epilogue::kGeluTanh, Epilogue::kGeluErf}) {
    for (const auto& [n, k, tokens] : sizes) {
      for (const int num_decode_rows : {0, 1, ApplyArgs::kAllRows}) {
        const Matrix weight(*ops_, dtype(), n, k, RandomFloats(n * k, 7));
        const Matrix bias(*ops_, dtype(), 1, n, RandomFloats(n, 8, 4.0f));
        Linear w;
        w.in = k;
        w.out = n;
        w.num_parts = 1;
        w.parts[0] = {DenseWeight(weight.tensor()), bias.vector()};
        const std::vector<float> x = RandomFloats(tokens * k, 9);
        const auto run = [&](Epilogue e) {
          return RunPrepared(*ops_, w, x, {.epilogue = e, .num_decode_rows = num_decode_rows});
        };
        std::vector<double> expected;
        for (const float sum : run(Epilogue::kStore)) expected.push_back(Gelu(epilogue, sum));
        ExpectNear(run(epilogue), expected, 1e-6, 4e-6,
                   "N=" + std::to_string(n) + " T=" + std::to_string(tokens));
      }
    }
  }
}

// With K = 1 and a weight of one, the sums can be anything.
TEST_P(VisionOpsTest, GeluSurvivesExtremesAndKeepsNaN) {
  const std::vector<float> sums = {0.0f,  -0.0f,  0.5f, -0.5f, 6.0f, -6.0f,
                                   60.0f, -60.0f, 3e4f, -3e4f, kNaN};
  const int n = static_cast<int>(sums.size());
  const Matrix weight(*ops_, dtype(), n, 1, sums);
  Linear w;
  w.in = 1;
  w.out = n;
  w.num_parts = 1;
  w.parts[0].weight = DenseWeight(weight.tensor());
  for (const Epilogue epilogue : {Epilogue::kGeluTanh, Epilogue::kGeluErf}) {
    const std::vector<float> y = RunPrepared(*ops_, w, {1.0f}, {.epilogue = epilogue});
    for (int i = 0; i < n; ++i) {
      if (std::isnan(sums[i])) {
        EXPECT_TRUE(std::isnan(y[i]));
      } else {
        const double expected = Gelu(epilogue, Rounded(sums[i], dtype()));
        EXPECT_NEAR(y[i], expected, 1e-6 + 4e-6 * std::abs(expected)) << sums[i];
      }
    }
  }
}

// [q | k | v] of each head in the columns of one matrix, frames of `len` rows. Keys are rotated in
// place, and each row attends to its own frame.
struct Heads {
  int heads, dim, frames, len;
  int hidden() const { return heads * dim; }
  int rows() const { return frames * len; }
};

std::vector<double> NaiveFrames(const Heads& s, std::vector<double> qkv,
                                const std::vector<float>& cos_sin,
                                const std::vector<int32_t>& positions) {
  const int width = 3 * s.hidden(), half = s.dim / 2;
  for (int t = 0; t < s.rows(); ++t) {
    for (int head = 0; head < 2 * s.heads; ++head) {  // queries, then keys
      double* x = qkv.data() + t * width + head * s.dim;
      for (int i = 0; i < half; ++i) {
        const float* row = cos_sin.data() + positions[(i % 2) * s.rows() + t] * s.dim;
        const double a = x[i], b = x[i + half];
        x[i] = a * row[i] - b * row[half + i];
        x[i + half] = b * row[i] + a * row[half + i];
      }
    }
  }
  std::vector<double> out(static_cast<size_t>(s.rows()) * s.hidden());
  for (int t = 0; t < s.rows(); ++t) {
    const int first = t / s.len * s.len;
    for (int head = 0; head < s.heads; ++head) {
      const double* q = qkv.data() + t * width + head * s.dim;
      std::vector<double> weights;
      double sum = 0;
      for (int u = first; u < first + s.len; ++u) {
        const double* k = qkv.data() + u * width + s.hidden() + head * s.dim;
        double score = 0;
        for (int i = 0; i < s.dim; ++i) score += q[i] * k[i];
        weights.push_back(std::exp(score / std::sqrt(s.dim)));
        sum += weights.back();
      }
      for (int i = 0; i < s.dim; ++i) {
        double y = 0;
        for (int u = 0; u < s.len; ++u) {
          y += weights[u] / sum * qkv[(first + u) * width + 2 * s.hidden() + head * s.dim + i];
        }
        out[t * s.hidden() + head * s.dim + i] = y;
      }
    }
  }
  return out;
}

TEST_P(VisionOpsTest, AttentionReadsTheMatrixOfTheProjection) {
  for (const Heads& s : {Heads{2, 8, 1, 1}, Heads{2, 20, 3, 17}, Heads{3, 72, 2, 65},
                         Heads{1, 64, 2, 129}, Heads{2, 80, 1, 33}}) {
    constexpr int kPositions = 11;
    const int width = 3 * s.hidden();
    const std::vector<float> qkv =
        Rounded(RandomFloats(size_t{1} * s.rows() * width, 10), activation_);
    const std::vector<float> cos_sin = RandomFloats(kPositions * s.dim, 11, 0.7f);
    std::vector<int32_t> axes, positions, slots, ends{0}, lens, tables;
    for (int i = 0; i < s.dim / 2; ++i) axes.push_back(i % 2);
    for (int i = 0; i < 2 * s.rows(); ++i) positions.push_back(5 * i % kPositions);
    for (int i = 0; i < s.rows(); ++i) slots.push_back(s.len + i);
    for (int f = 0; f < s.frames; ++f) {
      ends.push_back((f + 1) * s.len);
      lens.push_back(s.len);
      tables.push_back(f + 1);
    }
    const Matrix m(*ops_, activation_, s.rows(), width, qkv);
    const Matrix table(*ops_, DType::kF32, kPositions, s.dim, cos_sin);
    const Matrix out(*ops_, activation_, s.rows(), s.hidden());
    const Array<int32_t> a(*ops_, axes), p(*ops_, positions, 2), sl(*ops_, slots), e(*ops_, ends),
        l(*ops_, lens), tb(*ops_, tables);
    const Tensor q = m.tensor().Cols(0, s.hidden()),
                 k = m.tensor().Cols(s.hidden(), 2 * s.hidden());
    KvView kv;
    kv.kind = KvView::Kind::kContiguous;
    kv.format = KvFormat::Of(activation_);
    kv.kv_heads = s.heads;
    kv.base = k.data;
    kv.tables = tb.tensor().ptr<int32_t>();
    kv.table_stride = 1;
    kv.max_len = s.len;
    kv.s = {.page_stride = int64_t{s.len} * width,
            .head_stride = s.dim,
            .v_offset = s.hidden(),
            .token_stride = width,
            .head_dim = s.dim};
    ops_->Run(QkNormRopeStoreArgs{.q = q,
                                  .store = {.kv = kv,
                                            .k = k,
                                            .v = m.tensor().Cols(2 * s.hidden(), width),
                                            .slots = sl.tensor()},
                                  .rope = {.cos_sin = table.tensor(), .axis_of_pair = a.tensor()},
                                  .positions = p.matrix()});
    ops_->Run(AttentionArgs{.out = out.tensor(),
                            .q = q,
                            .kv = kv,
                            .meta = {.cu_seqlens_q = e.tensor(),
                                     .kv_lens = l.tensor(),
                                     .num_seqs = s.frames,
                                     .max_q_len = s.len,
                                     .max_kv_len = s.len},
                            .scale = static_cast<float>(1 / std::sqrt(s.dim)),
                            .options = {.causal = false}});
    // Queries and keys are rounded when they are rotated, softmax weights are rounded on tensor
    // cores.
    ExpectNear(out.Get(), NaiveFrames(s, {qkv.begin(), qkv.end()}, cos_sin, positions),
               3e-5 + 8 * rounding_, rounding_, "head_dim " + std::to_string(s.dim));
  }
}

}  // namespace
}  // namespace kuiper::test
