// Sampling: Philox against published vectors, greedy, filters and penalties against naive sorts,
// draws against the exact softmax (chi-square), and independence of the batch.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "cpu_targets.h"
#include "kuiper/kernels/common/philox.h"
#include "ops_test_util.h"

namespace kuiper::test {
namespace {

// Known-answer vectors of Random123 (kat_vectors, philox4x32 10).
TEST(Philox, MatchesPublishedVectors) {
  const auto expect = [](Philox4x32 counter, uint32_t key0, uint32_t key1, Philox4x32 expected) {
    const Philox4x32 actual = Philox4x32_10(counter, key0, key1);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(actual.word[i], expected.word[i]);
  };
  expect({{0, 0, 0, 0}}, 0, 0, {{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}});
  constexpr uint32_t kOnes = 0xffffffff;
  expect({{kOnes, kOnes, kOnes, kOnes}}, kOnes, kOnes,
         {{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}});
}

TEST(Philox, UniformIsOpen) {
  EXPECT_GT(OpenUniform(0), 0.0f);
  EXPECT_LT(OpenUniform(0xffffffffu), 1.0f);
  EXPECT_FLOAT_EQ(OpenUniform(0x80000000u), 0.5f);
}

// Sampling parameters of one row, all off.
struct Params {
  float temperature = 0;
  int top_k = 0;
  float top_p = 1, min_p = 0;
  int64_t seed = 0;
  int step = 0;
  float repetition = 1, presence = 0, frequency = 0;
  std::map<int32_t, int32_t> counts = {};  // penalised id -> times generated
  std::map<int32_t, float> biases = {};
};

std::vector<int32_t> Sample(Ops& ops, const std::vector<std::vector<float>>& logits,
                            const std::vector<Params>& params, int vocab_limit = 0) {
  const int num_rows = static_cast<int>(logits.size());
  const int vocab = static_cast<int>(logits[0].size());
  std::vector<float> flat;
  std::vector<int32_t> tokens, counts, bias_ids;
  std::vector<float> biases;
  std::vector<uint8_t> row_bytes(num_rows * sizeof(SampleRow));
  for (int r = 0; r < num_rows; ++r) {
    const Params& p = params[r];
    flat.insert(flat.end(), logits[r].begin(), logits[r].end());
    const SampleRow row{.params = {.temperature = p.temperature,
                                   .top_k = p.top_k,
                                   .top_p = p.top_p,
                                   .min_p = p.min_p,
                                   .repetition_penalty = p.repetition,
                                   .presence_penalty = p.presence,
                                   .frequency_penalty = p.frequency,
                                   .seed = static_cast<uint64_t>(p.seed)},
                        .index = p.step,
                        .first_penalty = static_cast<int32_t>(tokens.size()),
                        .num_penalties = static_cast<int32_t>(p.counts.size()),
                        .first_bias = static_cast<int32_t>(biases.size()),
                        .num_biases = static_cast<int32_t>(p.biases.size())};
    std::memcpy(row_bytes.data() + r * sizeof(row), &row, sizeof(row));
    for (const auto& [token, count] : p.counts) {
      tokens.push_back(token);
      counts.push_back(count);
    }
    for (const auto& [token, bias] : p.biases) {
      bias_ids.push_back(token);
      biases.push_back(bias);
    }
  }
  const Matrix m(ops, DType::kF32, num_rows, vocab, flat, vocab + 3);
  const Array<uint8_t> rows(ops, row_bytes);
  const Array<int32_t> penalty_tokens(ops, tokens), penalty_counts(ops, counts);
  const Array<int32_t> bias_tokens(ops, bias_ids);
  const Array<float> bias_values(ops, biases);
  const Array<int32_t> out(ops, std::vector<int32_t>(num_rows, -7));
  ops.Run(SampleArgs{.tokens = out.tensor(),
                     .logits = m.tensor(),
                     .rows = rows.tensor(),
                     .penalty_tokens = penalty_tokens.tensor(),
                     .penalty_counts = penalty_counts.tensor(),
                     .bias_tokens = bias_tokens.tensor(),
                     .bias_values = bias_values.tensor(),
                     .vocab_limit = vocab_limit == 0 ? vocab : vocab_limit});
  EXPECT_TRUE(SameBits(m.Get(), flat)) << "the logits were modified";
  return out.Get();
}

int32_t SampleOne(Ops& ops, const std::vector<float>& logits, const Params& params,
                  int vocab_limit = 0) {
  return Sample(ops, {logits}, {params}, vocab_limit)[0];
}

// Draws at steps [0, n), in batches of 64 rows.
std::vector<int32_t> Draws(Ops& ops, const std::vector<float>& logits, Params params, int n) {
  std::vector<int32_t> result;
  for (int begin = 0; begin < n; begin += 64) {
    std::vector<Params> rows;
    for (int i = begin; i < std::min(n, begin + 64); ++i) {
      params.step = i;
      rows.push_back(params);
    }
    const std::vector<std::vector<float>> same(rows.size(), logits);
    for (int32_t id : Sample(ops, same, rows)) result.push_back(id);
  }
  return result;
}

// Probabilities after temperature and filters, by full sorts in double precision.
std::vector<double> NaiveProbabilities(const std::vector<float>& logits, const Params& p) {
  const int n = static_cast<int>(logits.size());
  std::vector<double> z(n);
  for (int i = 0; i < n; ++i) z[i] = double{logits[i]} / p.temperature;
  std::vector<int> order(n);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return z[a] > z[b]; });
  if (p.top_k > 0 && p.top_k < n) order.resize(p.top_k);
  const auto probabilities = [&] {
    std::vector<double> q;
    double sum = 0;
    for (int id : order) sum += std::exp(z[id] - z[order[0]]);
    for (int id : order) q.push_back(std::exp(z[id] - z[order[0]]) / sum);
    return q;
  };
  std::vector<double> q = probabilities();
  if (p.top_p < 1) {
    double sum = 0;
    size_t kept = 0;
    while (kept < q.size() && (kept == 0 || sum < p.top_p)) sum += q[kept++];
    order.resize(kept);
    q = probabilities();
  }
  if (p.min_p > 0) {
    size_t kept = 1;
    while (kept < q.size() && q[kept] >= p.min_p * q[0]) ++kept;
    order.resize(kept);
    q = probabilities();
  }
  std::vector<double> result(n, 0.0);
  for (size_t i = 0; i < order.size(); ++i) result[order[i]] = q[i];
  return result;
}

// Chi-square of the draws against the probabilities; ids that are expected less than 5 times are
// pooled. Impossible ids must not occur.
void ExpectDistribution(const std::vector<int32_t>& draws, const std::vector<double>& probability,
                        const std::string& what) {
  std::vector<int> count(probability.size(), 0);
  for (int32_t id : draws) {
    ASSERT_GE(id, 0) << what;
    ASSERT_GT(probability[id], 0.0) << what << ": id " << id << " was filtered out";
    ++count[id];
  }
  double chi2 = 0, rest_expected = 0, rest_count = 0;
  int cells = 0;
  const auto add = [&](double observed, double expected) {
    chi2 += (observed - expected) * (observed - expected) / expected;
    ++cells;
  };
  for (size_t i = 0; i < probability.size(); ++i) {
    const double expected = probability[i] * static_cast<double>(draws.size());
    if (expected >= 5) {
      add(count[i], expected);
    } else {
      rest_expected += expected;
      rest_count += count[i];
    }
  }
  if (rest_expected > 0.5) add(rest_count, rest_expected);
  // Mean k, variance 2k: five standard deviations and a margin for small k.
  const double k = cells - 1;
  EXPECT_LE(chi2, k + 5 * std::sqrt(2 * k) + 8) << what << " with " << cells << " cells";
}

class SampleTest : public OpsTest {
 protected:
  // The emulated device is some hundred times slower; a fifth of the draws still fills the cells.
  int NumDraws(int n) const { return GetParam().type == DeviceType::kSimt ? n / 5 : n; }

  const std::unique_ptr<Ops> ops_ = MakeTestOps(GetParam());
};
KU_INSTANTIATE_OPS_TEST(SampleTest);

TEST_P(SampleTest, GreedyIsTheLowestIdOfTheMaximum) {
  for (int vocab : {1, 2, 15, 16, 17, 63, 64, 65, 1023, 1024, 1025, 5000, 151936}) {
    std::vector<float> logits = RandomFloats(vocab, vocab);
    for (int at : {0, vocab / 2, vocab - 1}) {
      std::vector<float> x = logits;
      x[at] = 100.0f;
      x[vocab - 1] = 100.0f;
      EXPECT_EQ(SampleOne(*ops_, x, {}), at) << vocab;
    }
    EXPECT_EQ(SampleOne(*ops_, std::vector<float>(vocab, -3.0f), {}), 0);
  }
}

TEST_P(SampleTest, EveryInstructionSetFindsTheMaximumAndDrawsTheSame) {
  if (GetParam().type != DeviceType::kCPU) GTEST_SKIP() << "instruction sets of CPUs";
  const std::vector<float> logits = RandomFloats(4099, 8, 3.0f);
  const int32_t best =
      static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  Params draw{.temperature = 1.0f, .top_p = 0.95f, .seed = 5};
  ForEachCpuTarget([&](const std::string& target) {
    EXPECT_EQ(SampleOne(*ops_, logits, {}), best) << target;
    ExpectDistribution(Draws(*ops_, logits, draw, 640), NaiveProbabilities(logits, draw), target);
    std::vector<float> bad = logits;
    bad[4098] = kNaN;
    EXPECT_EQ(SampleOne(*ops_, bad, {}), kNotFiniteToken) << target;
  });
}

TEST_P(SampleTest, IdsBeyondTheLimitAreNeverChosen) {
  std::vector<float> logits(100, 0.0f);
  for (int i = 60; i < 100; ++i) logits[i] = i == 80 ? kNaN : 50.0f;
  logits[7] = 1.0f;
  EXPECT_EQ(SampleOne(*ops_, logits, {}, 60), 7);
  for (int seed = 0; seed < 50; ++seed) {
    EXPECT_LT(SampleOne(*ops_, logits, {.temperature = 1.0f, .seed = seed}, 60), 60);
    EXPECT_LT(SampleOne(*ops_, logits, {.temperature = 1.0f, .top_k = 40, .seed = seed}, 60), 60);
  }
}

TEST_P(SampleTest, NonFiniteLogits) {
  for (float temperature : {0.0f, 0.7f}) {
    for (int at : {0, 500, 1499}) {
      std::vector<float> logits = RandomFloats(1500, 1);
      const Params p{.temperature = temperature};
      logits[at] = kNaN;
      EXPECT_EQ(SampleOne(*ops_, logits, p), kNotFiniteToken);
      logits[at] = kInf;
      EXPECT_EQ(SampleOne(*ops_, logits, p), kNotFiniteToken);
      logits[at] = -kInf;
      const int32_t id = SampleOne(*ops_, logits, p);
      EXPECT_GE(id, 0);
      EXPECT_NE(id, at);
    }
    EXPECT_EQ(SampleOne(*ops_, std::vector<float>(10, -kInf), {.temperature = temperature}),
              kNotFiniteToken);
  }
  std::vector<float> only(1000, -kInf);
  only[321] = -5.0f;
  for (const Params& p :
       {Params{.temperature = 1}, Params{.temperature = 1, .top_k = 5},
        Params{.temperature = 1, .top_p = 0.9f}, Params{.temperature = 1, .min_p = 0.1f}}) {
    EXPECT_EQ(SampleOne(*ops_, only, p), 321);
  }
}

// Consecutive rows begin at any multiple of 4 bytes.
TEST_P(SampleTest, RowsAreReadToTheirEndsWhereverTheyBegin) {
  for (int vocab : {1, 6, 67, 516, 1030, 8209}) {
    std::vector<std::vector<float>> logits;
    std::vector<int32_t> largest;
    std::vector<Params> params;
    for (int r = 0; r < 9; ++r) {
      logits.push_back(RandomFloats(vocab, r));
      largest.push_back(r == 0 ? vocab - 1 : vocab * (r - 1) / 8);
      logits[r][largest[r]] = 9.0f;
      params.push_back(r % 2 == 0 ? Params{} : Params{.temperature = 0.7f, .top_k = 1});
      if (r % 3 == 0) params[r].biases = {{0, 0.0f}};
    }
    EXPECT_EQ(Sample(*ops_, logits, params), largest) << vocab;
    for (int r = 0; r < 9; ++r) logits[r][r < 4 ? std::max(0, vocab - 1 - r) : 0] = kNaN;
    EXPECT_EQ(Sample(*ops_, logits, params), std::vector<int32_t>(9, kNotFiniteToken)) << vocab;
  }
}

TEST_P(SampleTest, TinyTemperatureIsGreedyAndDoesNotOverflow) {
  const std::vector<float> logits = RandomFloats(3000, 2, 1e6f);
  const int32_t best = SampleOne(*ops_, logits, {});
  for (float temperature : {1e-6f, 1e-30f, 1e-45f}) {
    for (const Params& p :
         {Params{.temperature = temperature}, Params{.temperature = temperature, .top_p = 0.9f},
          Params{.temperature = temperature, .top_k = 10, .min_p = 0.1f}}) {
      EXPECT_EQ(SampleOne(*ops_, logits, p), best) << temperature;
    }
  }
}

TEST_P(SampleTest, DrawsFollowTheSoftmax) {
  const std::vector<float> logits = RandomFloats(50, 11, 1.5f);
  const std::vector<float> wide = RandomFloats(3000, 12, 2.0f);
  for (float temperature : {0.5f, 1.0f, 2.0f}) {
    const Params p{.temperature = temperature, .seed = 1234567890123};
    ExpectDistribution(Draws(*ops_, logits, p, NumDraws(12800)), NaiveProbabilities(logits, p),
                       "50 ids");
    ExpectDistribution(Draws(*ops_, wide, p, NumDraws(6400)), NaiveProbabilities(wide, p),
                       "3000 ids");
  }
}

TEST_P(SampleTest, DifferentSeedsAreIndependentDraws) {
  const std::vector<float> logits = RandomFloats(20, 13);
  std::vector<std::vector<float>> same(64, logits);
  std::vector<int32_t> draws;
  for (int64_t seed = 0; seed < 6400; seed += 64) {
    std::vector<Params> params;
    for (int i = 0; i < 64; ++i) {
      params.push_back({.temperature = 1.0f, .seed = (seed + i) << 31, .step = 3});
    }
    for (int32_t id : Sample(*ops_, same, params)) draws.push_back(id);
  }
  ExpectDistribution(draws, NaiveProbabilities(logits, {.temperature = 1.0f}), "seeds");
}

TEST_P(SampleTest, FiltersKeepExactlyTheNaiveSet) {
  const std::vector<Params> cases = {
      {.temperature = 1.0f, .top_k = 1},
      {.temperature = 1.0f, .top_k = 7},
      {.temperature = 2.0f, .top_k = 60},
      {.temperature = 1.0f, .top_p = 0.3f},
      {.temperature = 0.7f, .top_p = 0.8f},
      {.temperature = 3.0f, .top_p = 0.99f},
      {.temperature = 1.0f, .top_p = 0.0f},
      {.temperature = 1.0f, .min_p = 0.05f},
      {.temperature = 1.5f, .min_p = 1.0f},
      {.temperature = 0.7f, .top_k = 20, .top_p = 0.8f},
      {.temperature = 1.0f, .top_k = 20, .top_p = 0.9f, .min_p = 0.1f},
      {.temperature = 1.0f, .top_k = 1000, .top_p = 0.5f},
  };
  for (int vocab : {61, 2500}) {
    const std::vector<float> logits = RandomFloats(vocab, 21, 1.2f);
    for (size_t i = 0; i < cases.size(); ++i) {
      const std::vector<double> expected = NaiveProbabilities(logits, cases[i]);
      const int num_draws = NumDraws(vocab == 61 ? 3200 : 1600);
      const std::vector<int32_t> draws = Draws(*ops_, logits, cases[i], num_draws);
      ExpectDistribution(draws, expected,
                         "case " + std::to_string(i) + ", vocab " + std::to_string(vocab));
    }
  }
}

// Each thread of the GPU's kernel has the number of ids that real vocabularies give it. Either few
// ids pass a filter, or more than the kernel can list.
TEST_P(SampleTest, FiltersOfWideRowsKeepTheNaiveSet) {
  const std::vector<float> logits = RandomFloats(20000, 22, 2.0f);
  for (const Params& p :
       {Params{.temperature = 1.0f, .top_k = 20, .top_p = 0.9f},
        Params{.temperature = 1.0f, .top_k = 1000},
        Params{.temperature = 2.0f, .top_k = 2000, .top_p = 0.99f},
        Params{.temperature = 0.5f, .top_p = 0.5f}, Params{.temperature = 4.0f, .top_p = 0.9f},
        Params{.temperature = 1.0f, .top_p = 0.95f, .min_p = 0.3f}}) {
    ExpectDistribution(Draws(*ops_, logits, p, 8), NaiveProbabilities(logits, p),
                       "top-k " + std::to_string(p.top_k) + ", top-p " + std::to_string(p.top_p));
  }
}

// Top-p uses the result of top-k, and min-p comes last. Of 0.4, 0.35, 0.05 and forty times 0.005,
// the nucleus of 0.9 needs the third id, which min-p keeps.
TEST_P(SampleTest, TopPLooksAtTheWholeTopKNotAtWhatMinPLeaves) {
  std::vector<float> logits(100, -100.0f);
  logits[10] = std::log(0.4f);
  logits[20] = std::log(0.35f);
  logits[30] = std::log(0.05f);
  for (int i = 50; i < 90; ++i) logits[i] = std::log(0.005f);
  const Params p{.temperature = 1.0f, .top_k = 50, .top_p = 0.9f, .min_p = 0.1f};
  ExpectDistribution(Draws(*ops_, logits, p, 640), NaiveProbabilities(logits, p), "min-p last");
}

// If logits at the border are equal, the lowest ids stay. All ids are drawn often, so the set is
// exact.
TEST_P(SampleTest, TiesAtTheBorderKeepTheLowestIds) {
  std::vector<float> logits(200, 0.0f);
  logits[150] = 1.0f;
  logits[40] = 1.0f;
  const auto set_of = [&](const Params& p) {
    const std::vector<int32_t> draws = Draws(*ops_, logits, p, 1280);
    return std::set<int32_t>(draws.begin(), draws.end());
  };
  EXPECT_EQ(set_of({.temperature = 1.0f, .top_k = 1}), (std::set<int32_t>{40}));
  EXPECT_EQ(set_of({.temperature = 1.0f, .top_k = 5}), (std::set<int32_t>{40, 150, 0, 1, 2}));
  // e / (2 e + 198) = 0.01336 each for the two, 0.00491 each for the others.
  EXPECT_EQ(set_of({.temperature = 1.0f, .top_p = 0.03f}), (std::set<int32_t>{40, 150, 0}));
  EXPECT_EQ(set_of({.temperature = 1.0f, .top_p = 0.01f}), (std::set<int32_t>{40}));
  EXPECT_EQ(set_of({.temperature = 1.0f, .min_p = 0.5f}), (std::set<int32_t>{40, 150}));
}

// Ascending logits make every id a new candidate.
TEST_P(SampleTest, TopKOfSortedVocabularies) {
  std::vector<float> ascending(5000), descending(5000);
  for (int i = 0; i < 5000; ++i) {
    ascending[i] = static_cast<float>(i) * 1e-4f;
    descending[i] = -ascending[i];
  }
  for (int id : Draws(*ops_, ascending, {.temperature = 1.0f, .top_k = 9}, 200)) {
    EXPECT_GE(id, 4991);
  }
  for (int id : Draws(*ops_, descending, {.temperature = 1.0f, .top_k = 9}, 200)) EXPECT_LT(id, 9);
}

TEST_P(SampleTest, PenaltiesChangeTheListedIdsOnly) {
  // Repetition divides positive and multiplies negative logits, prompt ids (count 0) included.
  EXPECT_EQ(SampleOne(*ops_, {4, 3, 1}, {.repetition = 1.5f, .counts = {{0, 0}}}), 1);
  EXPECT_EQ(SampleOne(*ops_, {4, 3, 1}, {.repetition = 1.3f, .counts = {{0, 0}}}), 0);
  EXPECT_EQ(SampleOne(*ops_, {-2, -3, -9}, {.repetition = 2.0f, .counts = {{0, 1}}}), 1);
  // Presence and frequency penalties apply to generated ids only.
  EXPECT_EQ(SampleOne(*ops_, {4, 3, 1}, {.presence = 1.5f, .counts = {{0, 0}}}), 0);
  EXPECT_EQ(SampleOne(*ops_, {4, 3, 1}, {.presence = 1.5f, .counts = {{0, 1}}}), 1);
  EXPECT_EQ(SampleOne(*ops_, {4, 3, 1}, {.frequency = 0.4f, .counts = {{0, 2}}}), 0);
  EXPECT_EQ(SampleOne(*ops_, {4, 3, 1}, {.frequency = 0.4f, .counts = {{0, 3}}}), 1);
  // Order: repetition first. 6 / 2 - 1 - 3 * 0.5 = 0.5 against 0.6 and 0.4.
  const Params all{.repetition = 2.0f, .presence = 1.0f, .frequency = 0.5f, .counts = {{1, 3}}};
  EXPECT_EQ(SampleOne(*ops_, {0.6f, 6, 0}, all), 0);
  EXPECT_EQ(SampleOne(*ops_, {0.4f, 6, 0}, all), 1);
  // Ids beyond the limit may be listed.
  EXPECT_EQ(SampleOne(*ops_, {4, 3, 9}, {.repetition = 2.0f, .counts = {{0, 0}, {2, 1}}}, 2), 1);
}

TEST_P(SampleTest, PenaltiesShapeTheDistribution) {
  std::vector<float> logits = RandomFloats(40, 31, 1.0f);
  Params p{.temperature = 0.9f, .repetition = 1.3f, .presence = 0.4f, .frequency = 0.2f};
  p.counts = {{3, 0}, {5, 2}, {17, 1}, {39, 4}};
  std::vector<float> penalised = logits;
  for (const auto& [id, count] : p.counts) {
    penalised[id] = penalised[id] > 0 ? penalised[id] / 1.3f : penalised[id] * 1.3f;
    penalised[id] -= 0.2f * static_cast<float>(count) + (count > 0 ? 0.4f : 0.0f);
  }
  ExpectDistribution(Draws(*ops_, logits, p, 6400), NaiveProbabilities(penalised, p), "penalties");
}

TEST_P(SampleTest, BiasesAreAddedBeforePenalties) {
  EXPECT_EQ(SampleOne(*ops_, {4, 3, 1}, {.biases = {{1, 1.5f}}}), 1);
  EXPECT_EQ(SampleOne(*ops_, {4, 3, 1}, {.biases = {{1, 0.5f}}}), 0);
  EXPECT_EQ(SampleOne(*ops_, {4, 3, 1}, {.biases = {{0, -100.f}, {1, -1.f}, {2, 1.5f}}}), 2);
  // (1 + 3) / 2 = 2 against 2.5 and 1.5; 1 / 2 + 3 = 3.5 would win.
  const Params both{.repetition = 2.0f, .counts = {{1, 0}}, .biases = {{1, 3.f}}};
  EXPECT_EQ(SampleOne(*ops_, {2.5f, 1, 0}, both), 0);
  EXPECT_EQ(SampleOne(*ops_, {1.5f, 1, 0}, both), 1);
  // Ids beyond the limit may be listed.
  EXPECT_EQ(SampleOne(*ops_, {4, 3, 9}, {.biases = {{1, 2.f}, {2, 50.f}}}, 2), 1);
}

TEST_P(SampleTest, IdsThatAreRuledOutAreNeverDrawn) {
  std::vector<float> logits = RandomFloats(300, 41, 2.0f);
  logits[7] = 30;
  Params p{.biases = {{7, -kInf}}};
  std::vector<float> without = logits;
  without[7] = -kInf;
  EXPECT_EQ(SampleOne(*ops_, logits, p), SampleOne(*ops_, without, {}));
  p.temperature = 1.0f;
  for (const float top_p : {1.0f, 0.9f}) {
    p.top_p = top_p;
    Params unbiased = p;
    unbiased.biases.clear();
    EXPECT_EQ(Draws(*ops_, logits, p, 320), Draws(*ops_, without, unbiased, 320));
  }
  for (const float temperature : {0.0f, 1.0f}) {
    const Params all{.temperature = temperature, .biases = {{0, -kInf}, {1, -kInf}}};
    EXPECT_EQ(SampleOne(*ops_, {1, 2}, all), kNotFiniteToken);
    EXPECT_EQ(SampleOne(*ops_, {kNaN, 2, 3}, all), kNotFiniteToken) << "NaN is not ruled out";
  }
}

TEST_P(SampleTest, BiasesShapeTheDistribution) {
  const std::vector<float> logits = RandomFloats(40, 42, 1.0f);
  Params p{.temperature = 0.9f, .presence = 0.4f, .counts = {{3, 1}, {20, 2}}};
  p.biases = {{3, 1.5f}, {5, -2.0f}, {17, 0.7f}, {39, -100.0f}};
  std::vector<float> shaped = logits;
  for (const auto& [id, bias] : p.biases) shaped[id] += bias;
  for (const auto& [id, count] : p.counts) shaped[id] -= 0.4f;
  ExpectDistribution(Draws(*ops_, logits, p, NumDraws(6400)), NaiveProbabilities(shaped, p),
                     "biases");
  p.top_k = 9;
  p.top_p = 0.8f;
  ExpectDistribution(Draws(*ops_, logits, p, NumDraws(3200)), NaiveProbabilities(shaped, p),
                     "biases and filters");
}

TEST_P(SampleTest, ADrawDoesNotDependOnItsBatch) {
  constexpr int kVocab = 20000;
  std::vector<std::vector<float>> logits;
  std::vector<Params> params;
  for (int r = 0; r < 24; ++r) {
    logits.push_back(RandomFloats(kVocab, 100 + r, 2.0f));
    Params p{.temperature = r % 4 == 0 ? 0.0f : 0.8f, .seed = r * 77, .step = r};
    if (r % 3 == 0) p.top_k = 50;
    if (r % 5 == 0) p.top_p = 0.9f;
    if (r % 7 == 0) p.counts = {{r, 1}};
    for (int b = 0; b < (r % 4 == 1 ? 1024 : r % 3); ++b) p.biases[b * 17 + r] = 0.01f * r;
    p.presence = 0.5f;
    params.push_back(p);
  }
  const std::vector<int32_t> batch = Sample(*ops_, logits, params);
  OpsOptions one_thread;
  one_thread.num_threads = 1;
  const auto other = MakeTestOps(GetParam(), one_thread);
  EXPECT_EQ(Sample(*other, logits, params), batch);
  for (int r = 0; r < 24; ++r) EXPECT_EQ(SampleOne(*ops_, logits[r], params[r]), batch[r]);
}

}  // namespace
}  // namespace kuiper::test
