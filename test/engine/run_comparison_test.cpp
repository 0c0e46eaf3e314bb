// Two runs of a request are compared token by token and then layer by layer. The weights cause the
// differences: the second engine has a checkpoint with one number changed.
#include "kuiper/engine/run_comparison.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>

#include "test/engine/engine_test_util.h"

namespace kuiper {
namespace {

constexpr char kModel[] = "qwen3-gqa2-d64-long-f32";  // 2 layers, untied LM head

// Adds to a number of a tensor in the F32 checkpoint of `dir`.
void Change(const test::TempDir& dir, const std::string& tensor, int64_t index) {
  std::string file = test::ReadFile(dir / "model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, file.data(), sizeof(header));
  const size_t entry = file.find("\"" + tensor + "\"");
  ASSERT_NE(entry, std::string::npos) << tensor;
  const std::string key = "\"data_offsets\":[";
  const size_t offsets = file.find(key, entry);
  ASSERT_LT(offsets, header);
  const size_t at = sizeof(header) + header + std::stoull(file.substr(offsets + key.size())) +
                    index * sizeof(float);
  float value = 0;
  std::memcpy(&value, &file.at(at), sizeof(value));
  value += 0.5f;
  std::memcpy(&file.at(at), &value, sizeof(value));
  test::WriteFile(dir / "model.safetensors", file);
}

Request TheRequest(int vocab) {
  Request request;
  request.prompt = Prompt(37, vocab);
  request.max_new_tokens = 12;
  request.ignore_eos = true;
  request.keep_logits = true;
  return request;
}

ComparedRun RunOf(const std::string& name, Engine& engine) {
  return {name, [&engine](std::optional<int> hidden_of) {
            Request request = TheRequest(Vocab(engine));
            request.hidden_of = hidden_of;
            int num_tokens = 0;
            return engine.Generate(request, [&](const TokenEvent&) {
              return !hidden_of.has_value() || ++num_tokens <= *hidden_of;
            });
          }};
}

EngineConfig Config(bool paged) {
  EngineConfig config = GoldenConfig(kModel);
  config.paged = paged;
  config.use_graph = paged;
  return config;
}

class RunComparisonTest : public ::testing::Test {
 protected:
  // The contiguous engine on the checkpoint, the paged one on another.
  RunComparison Compare(const std::string& model_path) {
    EngineConfig changed = Config(true);
    changed.model_path = model_path;
    const auto a = Create(Config(false)), b = Create(changed);
    const auto comparison = CompareRuns(RunOf("contiguous", *a), RunOf("paged", *b), Vocab(*a),
                                        a->model_config().decoder.hidden);
    EXPECT_TRUE(comparison.ok()) << comparison.status().message();
    return comparison.value();
  }
  RunComparison CompareChanged(const std::string& tensor, int64_t index = 0) {
    const test::TempDir dir;
    std::filesystem::copy(Config(true).model_path, dir.path());
    Change(dir, tensor, index);
    return Compare(dir.path());
  }
};

TEST_F(RunComparisonTest, EqualRunsHaveNoDifference) {
  const RunComparison comparison = Compare(Config(true).model_path);
  EXPECT_FALSE(comparison.difference.has_value()) << comparison.difference->what;
  EXPECT_EQ(comparison.first.tokens.size(), 12u);
}

TEST_F(RunComparisonTest, NamesTheFirstTokenAndTheFirstLayer) {
  for (const int layer : {0, 1}) {
    const std::string name = "model.layers." + std::to_string(layer) + ".mlp.down_proj.weight";
    const RunComparison comparison = CompareChanged(name);
    ASSERT_TRUE(comparison.difference.has_value());
    EXPECT_EQ(comparison.difference->token, 0);
    EXPECT_EQ(comparison.difference->layer, layer);
    const std::string head = "token 0, layer " + std::to_string(layer) + ": element 0 after it is ";
    EXPECT_EQ(comparison.difference->what.find(head), 0u) << comparison.difference->what;
    EXPECT_NE(comparison.difference->what.find(" contiguous, "), std::string::npos);
    EXPECT_NE(comparison.difference->what.find(" paged; logit of id "), std::string::npos);
  }
}

TEST_F(RunComparisonTest, TheHeadIsBehindTheLastLayer) {
  const RunComparison comparison = CompareChanged("model.norm.weight");
  ASSERT_TRUE(comparison.difference.has_value());
  EXPECT_EQ(comparison.difference->token, 0);
  EXPECT_FALSE(comparison.difference->layer.has_value());
  EXPECT_EQ(comparison.difference->what.find("token 0, after the last layer (all 2 layers"), 0u)
      << comparison.difference->what;
}

// The embedding of an id that only the answer has: the first token is chosen without it.
TEST_F(RunComparisonTest, ALaterTokenIsFoundInItsOwnStep) {
  const auto engine = Create(Config(false));
  const Request request = TheRequest(Vocab(*engine));
  const std::vector<int32_t> tokens = RunToEnd(*engine, request).tokens;
  const auto in_prompt = [&](int32_t id) {
    return std::find(request.prompt.begin(), request.prompt.end(), id) != request.prompt.end();
  };
  const auto fresh = std::find_if_not(tokens.begin(), tokens.end(), in_prompt);
  ASSERT_NE(fresh, tokens.end());
  const int hidden = engine->model_config().decoder.hidden;
  const RunComparison comparison =
      CompareChanged("model.embed_tokens.weight", int64_t{*fresh} * hidden + 3);
  ASSERT_TRUE(comparison.difference.has_value());
  EXPECT_EQ(comparison.difference->token, fresh - tokens.begin() + 1);
  EXPECT_EQ(comparison.difference->layer, 0);
}

// However the row is computed: in a chunk of a prompt, in a decode step, with run-ahead.
TEST(HiddenOfRequestTest, AreThoseOfTheTokenForEveryWayOfRunning) {
  std::vector<float> rows[2];
  for (const int token : {0, 5}) {
    for (const int variant : {0, 1, 2, 3}) {
      EngineConfig config = Config(variant > 0);
      config.use_graph = variant == 1;
      config.run_ahead = variant == 2;
      if (variant == 3) config.max_num_batched_tokens = 7;
      const auto engine = Create(config);
      Request request = TheRequest(Vocab(*engine));
      request.hidden_of = token;
      const Completion c = RunToEnd(*engine, request);
      const DecoderConfig& model = engine->model_config().decoder;
      ASSERT_EQ(c.hidden.size(), static_cast<size_t>(model.layers * model.hidden));
      ASSERT_EQ(c.tokens.size(), 12u) << "the answer goes on behind it";
      std::vector<float>& expected = rows[token > 0];
      if (variant == 0) expected = c.hidden;
      EXPECT_EQ(std::memcmp(c.hidden.data(), expected.data(), expected.size() * sizeof(float)), 0)
          << "token " << token << ", variant " << variant;
    }
  }
  EXPECT_NE(rows[0], rows[1]);
}

// The step of a further token may be in flight when the answer ends.
TEST(HiddenOfRequestTest, AreNoneWhereTheAnswerEndsBeforeTheToken) {
  for (const Device& device : CpuAndAccelerators()) {
    for (const bool ahead : {false, true}) {
      EngineConfig config = Config(true);
      config.device = device;
      config.run_ahead = ahead;
      const auto engine = Create(config);
      ASSERT_NE(engine, nullptr);
      Request request = TheRequest(Vocab(*engine));
      request.keep_logits = false;
      const std::vector<int32_t> tokens = RunToEnd(*engine, request).tokens;
      for (const int last : {0, 4}) {  // the token that ends the answer
        for (const bool aborts : {false, true}) {
          Request ends = request;
          if (!aborts) ends.stop_token_ids = {tokens[last]};
          ends.min_new_tokens = last;
          const auto hidden_size = [&](int token) {
            ends.hidden_of = token;
            int num_tokens = 0;
            const auto c = engine->Generate(
                ends, [&](const TokenEvent&) { return !aborts || ++num_tokens <= last; });
            EXPECT_EQ(c->tokens.size(), last + 1u);
            return c->hidden.size();
          };
          const DecoderConfig& model = engine->model_config().decoder;
          EXPECT_EQ(hidden_size(last), static_cast<size_t>(model.layers) * model.hidden);
          EXPECT_EQ(hidden_size(last + 1), 0u) << DeviceName(device) << ", run ahead: " << ahead;
        }
      }
    }
  }
}

TEST(HiddenOfRequestTest, AreOfOneAnswer) {
  const auto engine = Create(Config(true));
  Request request = TheRequest(Vocab(*engine));
  request.hidden_of = -1;
  EXPECT_EQ(engine->Add(request).status().code(), StatusCode::kInvalidArgument);
  request.hidden_of = 0;
  request.num_samples = 2;
  EXPECT_EQ(engine->Add(request).status().code(), StatusCode::kInvalidArgument);
  request.num_samples = 1;
  request.beam_width = 2;
  EXPECT_EQ(engine->Add(request).status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kuiper
