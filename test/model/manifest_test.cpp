// Properties of the lists of weights that their users depend on.
#include "kuiper/model/manifest.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "kuiper/model/decoder.h"
#include "test/model/model_files.h"

namespace kuiper {
namespace {

ModelConfig Config(bool tied, bool biases) {
  ModelConfig config;
  config.architecture = "LlamaForCausalLM";
  DecoderConfig& d = config.decoder;
  d.vocab = 96;
  d.hidden = 32;
  d.layers = 2;
  d.heads = 4;
  d.kv_heads = 2;
  d.head_dim = 16;
  d.intermediate = 40;
  d.tie_embeddings = tied;
  d.qkv_bias = d.o_bias = d.mlp_bias = d.qk_norm = biases;
  return config;
}

TEST(Manifest, EveryWeightHasANameAndAPlaceOfItsOwn) {
  for (const bool tied : {false, true}) {
    for (const bool biases : {false, true}) {
      DecoderWeights weights;
      const WeightManifest list = ListWeights(Config(tied, biases), &weights);
      std::set<std::string> names;
      std::set<const void*> places;
      for (const Weight& w : list.weights) {
        EXPECT_TRUE(names.insert(w.name).second) << w.name;
        ASSERT_TRUE(w.tensor != nullptr || w.matrix != nullptr) << w.name;
        if (w.tensor != nullptr) {
          EXPECT_TRUE(places.insert(w.tensor).second) << w.name;
        }
        if (w.matrix != nullptr) {
          EXPECT_TRUE(places.insert(w.matrix).second) << w.name;
        }
      }
      // Embedding, head and final norm; two norms and seven matrices a layer, two norms of heads
      // and seven biases.
      EXPECT_EQ(places.size(), 3 + 2 * (9 + (biases ? 9u : 0u)));
      EXPECT_EQ(names.size(), places.size() - (tied ? 1 : 0));
    }
  }
}

TEST(Manifest, TheEmbeddingComesFirstAndMayBeTheHead) {
  DecoderWeights weights;
  const Weight tied = ListWeights(Config(true, false), &weights).weights[0];
  EXPECT_EQ(tied.tensor, &weights.embed);
  EXPECT_EQ(tied.matrix, &weights.lm_head.parts[0].weight);
  EXPECT_EQ(weights.lm_head.num_parts, 1);
  EXPECT_EQ(weights.lm_head.in, 32);
  EXPECT_EQ(weights.lm_head.out, 96);
  DecoderWeights others;
  const Weight untied = ListWeights(Config(false, false), &others).weights[0];
  EXPECT_EQ(untied.name, tied.name);
  EXPECT_EQ(untied.matrix, nullptr);
  EXPECT_TRUE(untied.alias.empty());
}

// Returns the values that a rank of `ranks` holds, with the roles split as in tensor parallelism.
int64_t ValuesOfRank(const Weight& w, int ranks) {
  if (w.role == WeightRole::kNorm || (w.role == WeightRole::kRow && !w.is_matrix())) {
    return w.num_values();
  }
  const int64_t cut = w.shape[w.role == WeightRole::kRow ? 1 : 0];
  EXPECT_EQ(cut % ranks, 0) << w.name;
  return w.num_values() / ranks;
}

TEST(Manifest, RolesSayHowAModelIsCut) {
  DecoderWeights weights;
  std::map<WeightRole, int> matrices, vectors;
  int64_t cut = 0, whole = 0;
  for (const Weight& w : ListWeights(Config(false, true), &weights).weights) {
    ++(w.is_matrix() ? matrices : vectors)[w.role];
    const bool is_whole = ValuesOfRank(w, 2) == w.num_values();
    (is_whole ? whole : cut) += w.num_values();
  }
  EXPECT_EQ(matrices,
            (std::map<WeightRole, int>{
                {WeightRole::kColumn, 10}, {WeightRole::kRow, 4}, {WeightRole::kVocabulary, 2}}));
  EXPECT_EQ(vectors,
            (std::map<WeightRole, int>{
                {WeightRole::kNorm, 9}, {WeightRole::kColumn, 10}, {WeightRole::kRow, 4}}));
  // Norms of the stream and of heads, and biases that are added after a sum over ranks.
  EXPECT_EQ(whole, 5 * 32 + 4 * 16 + 4 * 32);
  EXPECT_EQ(cut + whole, test::ParameterCount(Config(false, true)));
}

}  // namespace
}  // namespace kuiper
