// Compares ids with llama.cpp, transformers and tokenizers, and encodes a whole book.
#include <gtest/gtest.h>
#include <time.h>

#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "kuiper/io/token_stream.h"
#include "kuiper/io/tokenizer.h"
#include "test/io/io_test_util.h"
#include "test/test_data.h"

namespace kuiper {
namespace {

using nlohmann::json;
using test::LoadTokenizer;
using test::ReadText;
using test::Shared;

constexpr char kQwen3[] = "tokenizers/qwen3/tokenizer.json";
constexpr char kQwen25[] = "tokenizers/qwen2.5/tokenizer.reconstructed.json";

class QwenVectors : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    KU_REQUIRE_SHARED(GetParam());
    tokenizer_ = LoadTokenizer(Shared(GetParam()));
    ASSERT_NE(tokenizer_, nullptr);
  }
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(QwenVectors, EqualsLlamaCpp) {
  const std::string base = Shared("tokenizer_vectors/llamacpp_ggml-vocab-qwen2.gguf");
  const std::string inputs = ReadText(base + ".inp");
  std::istringstream outputs(ReadText(base + ".out"));
  const std::string separator = "\n__ggml_vocab_test__\n";
  int cases = 0;
  for (size_t begin = 0; begin <= inputs.size(); ++cases) {
    const size_t end = std::min(inputs.find(separator, begin), inputs.size());
    const std::string text = inputs.substr(begin, end - begin);
    begin = end == inputs.size() ? end + 1 : end + separator.size();
    // The last case is empty and therefore has no line.
    std::string line;
    if (!std::getline(outputs, line)) {
      EXPECT_EQ(text, "");
    }
    std::istringstream numbers(line);
    const std::vector<int32_t> expected{std::istream_iterator<int32_t>(numbers), {}};
    EXPECT_EQ(tokenizer_->Encode(text), expected) << "case " << cases << ": " << text;
    EXPECT_EQ(tokenizer_->EncodeWithSpecials(text), expected) << "case " << cases;
  }
  EXPECT_EQ(cases, 47);
}

TEST_P(QwenVectors, EqualsTransformersInThirtyLanguages) {
  const json inputs =
      json::parse(ReadText(Shared("tokenizer_vectors/swift_transformers_30_inputs.json")));
  const json expected =
      json::parse(ReadText(Shared("tokenizer_vectors/swift_transformers_30_Qwen2.5-0.5B.json")));
  ASSERT_EQ(inputs["inputs"].size(), 30u);
  for (const json& input : inputs["inputs"]) {
    const json& entry = expected["entries"][input["id"].get<std::string>()];
    const auto ids = entry["input_ids"].get<std::vector<int32_t>>();
    EXPECT_EQ(tokenizer_->EncodeWithSpecials(input["text"].get<std::string>()), ids) << input["id"];
    EXPECT_EQ(DecodeTokens(*tokenizer_, ids), entry["decoded_skip_special"]) << input["id"];
    TokenStream::Options options;
    options.skip_special = false;
    EXPECT_EQ(DecodeTokens(*tokenizer_, ids, options), entry["decoded_with_special"]);
  }
}

TEST_P(QwenVectors, EqualsReferenceOnAWholeBook) {
  const std::string path = Shared("reference_text/pg23950-three-kingdoms-zh.txt");
  const std::string text = ReadText(path);
  const std::string raw = ReadText(path + ".qwen.ids.u32");
  std::vector<int32_t> expected(raw.size() / 4);
  for (size_t i = 0; i < expected.size(); ++i) {
    const auto byte = [&](int k) { return uint32_t{static_cast<uint8_t>(raw[4 * i + k])}; };
    expected[i] = static_cast<int32_t>(byte(0) | byte(1) << 8 | byte(2) << 16 | byte(3) << 24);
  }
  ASSERT_GT(expected.size(), 600000u);
  const std::vector<int32_t> ids = tokenizer_->Encode(text);
  ASSERT_EQ(ids.size(), expected.size());
  EXPECT_TRUE(ids == expected);
  EXPECT_TRUE(DecodeTokens(*tokenizer_, ids) == text);
}

INSTANTIATE_TEST_SUITE_P(Files, QwenVectors, ::testing::Values(kQwen3, kQwen25),
                         [](const auto& info) {
                           return info.param == std::string(kQwen3) ? "Qwen3" : "Qwen25";
                         });

// test/data/tokenizer_fuzz.json is made by tools/make_tokenizer_goldens.py.
json Fuzz() {
  return json::parse(ReadText(test::Source("test/data/tokenizer_fuzz.json")));
}

TEST(TokenizerFuzzGoldens, EncodesRandomTextAsHuggingFace) {
  const json goldens = Fuzz();
  ASSERT_EQ(goldens["sections"].size(), 2u);
  for (const json& section : goldens["sections"]) {
    const std::string file = section["tokenizer"];
    KU_REQUIRE_SHARED(file);
    const auto tokenizer = LoadTokenizer(Shared(file));
    ASSERT_NE(tokenizer, nullptr);
    for (const json& item : section["encode"]) {
      const std::string text = item[0];
      EXPECT_EQ(tokenizer->EncodeWithSpecials(text), item[1].get<std::vector<int32_t>>())
          << file << ": " << item[0];
    }
  }
}

TEST(TokenizerFuzzGoldens, DecodesRandomIdsAsHuggingFace) {
  const json goldens = Fuzz();
  ASSERT_EQ(goldens["sections"].size(), 2u);
  for (const json& section : goldens["sections"]) {
    const std::string file = section["tokenizer"];
    KU_REQUIRE_SHARED(file);
    const auto tokenizer = LoadTokenizer(Shared(file));
    ASSERT_NE(tokenizer, nullptr);
    // Hugging Face's ByteFallback decoder replaces every byte of a broken run on its own, which
    // requires the end of the run. A stream cannot wait for that, so only whole characters are
    // compared.
    const bool byte_fallback = tokenizer->StripsLeadingSpace();
    int compared = 0;
    for (const json& item : section["decode"]) {
      const auto ids = item[0].get<std::vector<int32_t>>();
      if (byte_fallback && item[1].get<std::string>().find("\uFFFD") != std::string::npos) continue;
      TokenStream::Options options;
      EXPECT_EQ(DecodeTokens(*tokenizer, ids, options), item[2]) << file << item[0];
      options.skip_special = false;
      EXPECT_EQ(DecodeTokens(*tokenizer, ids, options), item[1]) << file << item[0];
      ++compared;
    }
    EXPECT_GT(compared, byte_fallback ? 5 : 100) << file;
  }
}

TEST(TinyStoriesTokenizer, PromptsStartWithBos) {
  KU_REQUIRE_SHARED("models/tinystories-656K/tokenizer.json");
  const auto tokenizer = LoadTokenizer(Shared("models/tinystories-656K"));
  ASSERT_NE(tokenizer, nullptr);
  const json golden = json::parse(ReadText(Shared("models/tinystories-656K/golden_greedy.json")));
  ASSERT_TRUE(tokenizer->bos().has_value());
  for (const json& item : golden["cases"]) {
    std::vector<int32_t> ids = tokenizer->Encode(item["prompt"].get<std::string>());
    ids.insert(ids.begin(), *tokenizer->bos());
    EXPECT_EQ(ids, item["prompt_ids"].get<std::vector<int32_t>>());
  }
}

TEST(QwenTokenizer, SaysWhatTheFileSays) {
  KU_REQUIRE_SHARED(kQwen3);
  const auto tokenizer = LoadTokenizer(Shared("tokenizers/qwen3"));
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->max_id(), 151668);
  EXPECT_EQ(tokenizer->TokenId("<|im_end|>"), 151645);
  EXPECT_EQ(tokenizer->TokenId("</think>"), 151668);
  EXPECT_EQ(tokenizer->TokenId("hello"), std::nullopt);
  EXPECT_FALSE(tokenizer->bos().has_value());
  EXPECT_TRUE(tokenizer->IsSpecial(151645));
  EXPECT_FALSE(tokenizer->IsSpecial(151667));
  EXPECT_EQ(tokenizer->Bytes(151667), "<think>");
  EXPECT_EQ(tokenizer->Bytes(151669), "");
  EXPECT_EQ(tokenizer->Bytes(151935), "");
  EXPECT_EQ(tokenizer->Bytes(-1), "");
  EXPECT_FALSE(tokenizer->IsSpecial(-1));
  EXPECT_FALSE(tokenizer->IsSpecial(1 << 30));
}

TEST(QwenTokenizer, TypedControlTokensStayText) {
  KU_REQUIRE_SHARED(kQwen3);
  const auto tokenizer = LoadTokenizer(Shared(kQwen3));
  ASSERT_NE(tokenizer, nullptr);
  const std::string text = "a<|im_end|>\n<think>b</think><|endoftext|>";
  const std::vector<int32_t> ids = tokenizer->Encode(text);
  for (int32_t id : ids) EXPECT_LT(id, 151643);
  EXPECT_EQ(DecodeTokens(*tokenizer, ids), text);
  EXPECT_EQ(tokenizer->EncodeWithSpecials("<|im_end|>"), std::vector<int32_t>{151645});
}

TEST(QwenTokenizer, PieceBoundariesDoNotChangeIds) {
  KU_REQUIRE_SHARED(kQwen3);
  const auto tokenizer = LoadTokenizer(Shared(kQwen3));
  ASSERT_NE(tokenizer, nullptr);
  const std::string text = "user\n\n  hello world's e\u0301nd";
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    if (cut < text.size() && (text[cut] & 0xC0) == 0x80) continue;
    const TextPiece pieces[] = {{std::string_view(text).substr(0, cut), true},
                                {std::string_view(text).substr(cut), false}};
    EXPECT_EQ(tokenizer->EncodePieces(pieces), tokenizer->Encode(text)) << cut;
  }
  const TextPiece spread[] = {{"<|im_", true}, {"end|>", false}};
  EXPECT_EQ(tokenizer->EncodePieces(spread), tokenizer->Encode("<|im_end|>"));
}

TEST(QwenTokenizer, ReadsInvalidUtf8AsReplacementCharacters) {
  KU_REQUIRE_SHARED(kQwen3);
  const auto tokenizer = LoadTokenizer(Shared(kQwen3));
  ASSERT_NE(tokenizer, nullptr);
  EXPECT_EQ(tokenizer->Encode("a\xFF\xE4\xBD z"), tokenizer->Encode("a\uFFFD\uFFFD z"));
}

// Returns the CPU time of this thread, which other threads on its core do not affect.
double CpuSeconds() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// 16 times the text is 256 times the work for a quadratic merge loop or backtracking, and about 20
// times for a heap; the bound is far from both.
TEST(QwenTokenizer, LongRunsTakeLinearithmicWork) {
  KU_REQUIRE_SHARED(kQwen3);
  const auto tokenizer = LoadTokenizer(Shared(kQwen3));
  ASSERT_NE(tokenizer, nullptr);
  for (const char* unit : {"a", " ", "\n", "!", "\u4E00", "\u0301"}) {
    const auto seconds = [&](size_t bytes) {
      std::string text;
      while (text.size() < bytes) text += unit;
      const double begin = CpuSeconds();
      const std::vector<int32_t> ids = tokenizer->Encode(text);
      const double end = CpuSeconds();
      EXPECT_TRUE(DecodeTokens(*tokenizer, ids) == text) << unit;
      return end - begin;
    };
    seconds(1 << 14);  // allocates the memory that the next calls reuse
    const double few = seconds(1 << 14);
    EXPECT_LT(seconds(1 << 18), 70 * few) << unit;
  }
}

}  // namespace
}  // namespace kuiper
