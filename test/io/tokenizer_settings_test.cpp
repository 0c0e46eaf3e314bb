// Compares settings of tokenizer.json in public checkpoints with Hugging Face's `tokenizers`:
// test/data/tokenizer_settings.json, made by tools/make_tokenizer_setting_goldens.py.
#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "kuiper/io/token_stream.h"
#include "kuiper/io/tokenizer.h"
#include "test/io/io_test_util.h"
#include "test/test_data.h"

namespace kuiper {
namespace {

using nlohmann::json;
using Ids = std::vector<int32_t>;

const json& Goldens() {
  static const json goldens =
      json::parse(test::ReadText(test::Source("test/data/tokenizer_settings.json")));
  return goldens;
}

std::unique_ptr<Tokenizer> Make(const json& setting) {
  json parts = setting["parts"];
  parts["model"] = Goldens()["models"][setting["model"].get<std::string>()];
  const std::string name = setting["name"];
  auto tokenizer = Tokenizer::FromJson(parts.dump(), "", name);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return tokenizer.ok() ? std::move(tokenizer).value() : nullptr;
}

TEST(TokenizerSettings, IdsAreThoseOfHuggingFace) {
  const json& texts = Goldens()["texts"];
  ASSERT_GE(Goldens()["settings"].size(), 39u);
  for (const json& setting : Goldens()["settings"]) {
    const auto tokenizer = Make(setting);
    ASSERT_NE(tokenizer, nullptr);
    ASSERT_EQ(setting["ids"].size(), texts.size());
    for (size_t i = 0; i < texts.size(); ++i) {
      EXPECT_EQ(tokenizer->EncodeWithSpecials(texts[i].get<std::string>()),
                setting["ids"][i].get<Ids>())
          << setting["name"] << ": " << texts[i];
    }
  }
}

TEST(TokenizerSettings, TextsAreThoseOfHuggingFace) {
  for (const json& setting : Goldens()["settings"]) {
    const auto tokenizer = Make(setting);
    ASSERT_NE(tokenizer, nullptr);
    for (const json& item : setting["decoded"]) {
      TokenStream::Options options;
      EXPECT_EQ(DecodeTokens(*tokenizer, item[0].get<Ids>(), options), item[2]) << setting["name"];
      options.skip_special = false;
      EXPECT_EQ(DecodeTokens(*tokenizer, item[0].get<Ids>(), options), item[1]) << setting["name"];
    }
  }
}

// The template writes the control tokens and users the other text: the ids are those of the whole
// text.
TEST(TokenizerSettings, WhoWroteTheRestOfATextDoesNotChangeItsIds) {
  constexpr struct {
    const char* text;
    bool is_template;
  } kPieces[] = {{"<s>", true},   {" [INST] ", true}, {"Hi, e\u0301a", false}, {"\u0338", true},
                 {" </s>", true}, {"x2 ", false},     {"</s>", true},          {"", false},
                 {"\n<s>", true}, {"▁", false},       {"<s>\n", true},         {"  ", false}};
  for (const json& setting : Goldens()["settings"]) {
    const auto tokenizer = Make(setting);
    ASSERT_NE(tokenizer, nullptr);
    std::string text;
    std::vector<TextPiece> pieces;
    for (const auto& piece : kPieces) {
      text += piece.text;
      pieces.push_back({piece.text, piece.is_template});
    }
    EXPECT_EQ(tokenizer->EncodePieces(pieces), tokenizer->EncodeWithSpecials(text))
        << setting["name"];
  }
}

TEST(TokenizerSettings, WhatUsersTypeNeverBecomesAControlToken) {
  for (const json& setting : Goldens()["settings"]) {
    const auto tokenizer = Make(setting);
    ASSERT_NE(tokenizer, nullptr);
    const int first_added = setting["parts"]["added_tokens"][0]["id"];
    for (const char* typed : {"<s>", " </s>", "</s> ", "<s> <s>", "<|user|>", "word", "s>", "<s"}) {
      for (const char* before : {"", "a ", "<"}) {
        for (const char* after : {"", " ", "s>", ">"}) {
          const TextPiece pieces[] = {{before, true}, {typed, false}, {after, true}};
          for (const int32_t id : tokenizer->EncodePieces(pieces)) {
            EXPECT_LT(id, first_added) << setting["name"] << ": " << before << typed << after;
          }
        }
      }
    }
  }
}

// Text that continues known ids gets no mark of a beginning.
TEST(TokenizerSettings, TextContinuesTheIdsBeforeIt) {
  for (const json& setting : Goldens()["settings"]) {
    const auto tokenizer = Make(setting);
    ASSERT_NE(tokenizer, nullptr);
    Ids ids = tokenizer->EncodeWithSpecials("Hi");
    const TextPiece piece{"\n</s>x", true};
    const Ids more = tokenizer->EncodePieces({&piece, 1}, true);
    ids.insert(ids.end(), more.begin(), more.end());
    EXPECT_EQ(ids, tokenizer->EncodeWithSpecials("Hi\n</s>x")) << setting["name"];
  }
}

// A chat template whose tokenizer looks for control tokens in normalised text.
TEST(TokenizerSettings, TemplatesWriteNormalizedControlTokens) {
  const std::string path = "outside/15-normalized-control-tokens-in-templates/";
  KU_REQUIRE_SHARED(path + "model/tokenizer.json");
  const auto tokenizer = test::LoadTokenizer(test::Shared(path + "model"));
  ASSERT_NE(tokenizer, nullptr);
  const TextPiece pieces[] = {{"<|start_story|>[", true},
                              {"user", false},
                              {"] ", true},
                              {"Once upon a time", false},
                              {" <|end_story|>", true}};
  EXPECT_EQ(tokenizer->EncodePieces(pieces), (Ids{1, 0, 823, 91, 0, 80, 147, 201, 282, 57, 2}));
}

}  // namespace
}  // namespace kuiper
