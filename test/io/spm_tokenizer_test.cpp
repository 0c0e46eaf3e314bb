// Trains .model files from text in this file and compares with SentencePiece itself.
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <fstream>
#include <string>
#include <vector>

#include "kuiper/io/token_stream.h"
#include "kuiper/io/tokenizer.h"
#include "test/io/io_test_util.h"
#include "test/temp_dir.h"

namespace kuiper {
namespace {

class SpmTokenizerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream text(dir_ + "/text.txt");
    const char* who[] = {"The cat", "A small dog", "The old king", "My friend", "Une fée"};
    const char* what[] = {"sat on", "looked at", "ran from", "talked to", "painted"};
    const char* where[] = {"the red mat.", "a big tree!", "the green hill?", "every flower.",
                           "été 你好。"};
    for (const char* a : who) {
      for (const char* b : what) {
        for (const char* c : where) text << a << ' ' << b << ' ' << c << '\n';
      }
    }
    text.close();
    const auto trained = sentencepiece::SentencePieceTrainer::Train(
        "--input=" + dir_ + "/text.txt --model_prefix=" + dir_ +
        "/m --vocab_size=400 --model_type=bpe --byte_fallback=true --character_coverage=0.98 "
        "--hard_vocab_limit=false --minloglevel=2 --num_threads=1");
    ASSERT_TRUE(trained.ok()) << trained.ToString();
    ASSERT_TRUE(reference_.Load(dir_ + "/m.model").ok());
    tokenizer_ = test::LoadTokenizer(dir_);
    ASSERT_NE(tokenizer_, nullptr);
  }

  const test::TempDir folder_;
  const std::string dir_ = folder_.path();
  sentencepiece::SentencePieceProcessor reference_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_F(SpmTokenizerTest, EqualsSentencePiece) {
  for (const char* text : {"The cat ran from a big tree.", "unseen words, 123", "été 你好 😀", " a",
                           "<s> text </s>", "a\nb\tc", ""}) {
    const std::vector<int> expected = reference_.EncodeAsIds(text);
    EXPECT_EQ(tokenizer_->Encode(text), std::vector<int32_t>(expected.begin(), expected.end()));
    EXPECT_EQ(DecodeTokens(*tokenizer_, tokenizer_->Encode(text)), reference_.DecodeIds(expected));
  }
}

TEST_F(SpmTokenizerTest, KnowsControlAndBytePieces) {
  EXPECT_EQ(tokenizer_->max_id() + 1, reference_.GetPieceSize());
  EXPECT_EQ(tokenizer_->bos(), reference_.bos_id());
  EXPECT_TRUE(tokenizer_->IsSpecial(reference_.eos_id()));
  EXPECT_EQ(tokenizer_->TokenId("</s>"), reference_.eos_id());
  EXPECT_EQ(tokenizer_->TokenId("the"), std::nullopt);
  EXPECT_EQ(tokenizer_->Bytes(reference_.PieceToId("<0xF0>")), "\xF0");
  EXPECT_EQ(tokenizer_->Bytes(100000), "");
  EXPECT_TRUE(tokenizer_->StripsLeadingSpace());
}

TEST_F(SpmTokenizerTest, ControlPiecesAreParsedOnRequestOnly) {
  const std::vector<int32_t> ids = tokenizer_->EncodeWithSpecials("<s>a</s>");
  ASSERT_GE(ids.size(), 3u);
  EXPECT_EQ(ids.front(), reference_.bos_id());
  EXPECT_EQ(ids.back(), reference_.eos_id());
  for (int32_t id : tokenizer_->Encode("<s>a</s>")) EXPECT_FALSE(tokenizer_->IsSpecial(id));
}

TEST_F(SpmTokenizerTest, ConfigCanSwitchBosOff) {
  std::ofstream(dir_ + "/tokenizer_config.json") << R"({"add_bos_token":false})";
  EXPECT_FALSE(test::LoadTokenizer(dir_)->bos().has_value());
}

TEST_F(SpmTokenizerTest, TruncatedModelsAreErrors) {
  const std::string model = test::ReadText(dir_ + "/m.model");
  for (size_t size = 0; size < model.size(); size += 97) {
    std::ofstream(dir_ + "/cut.model", std::ios::binary) << model.substr(0, size);
    const auto tokenizer = Tokenizer::Load(dir_ + "/cut.model");
    if (tokenizer.ok()) (*tokenizer)->Encode("The cat");
  }
}

}  // namespace
}  // namespace kuiper
