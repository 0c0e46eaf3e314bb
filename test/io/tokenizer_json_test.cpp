// Small tokenizer.json files: components, both serialisations of merges, and refused files.
#include <gtest/gtest.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kuiper/io/split_regex.h"
#include "kuiper/io/token_stream.h"
#include "kuiper/io/tokenizer.h"
#include "test/io/io_test_util.h"
#include "test/log_capture.h"
#include "test/model/model_files.h"

namespace kuiper {
namespace {

using Ids = std::vector<int32_t>;

// A tokenizer.json with the given parts; text vocabulary a, b, c, ab, abc and bytes of "é".
struct Parts {
  std::string added = "[]";
  std::string normalizer = "null";
  std::string pre_tokenizer = "null";
  std::string post_processor = "null";
  std::string decoder = R"({"type":"Sequence","decoders":[{"type":"Fuse"}]})";
  std::string vocab = R"({"a":0,"b":1,"c":2,"ab":3,"abc":4,"<unk>":5,"<0xC3>":6,"<0xA9>":7," ":8})";
  std::string merges = R"(["a b","ab c"])";
  std::string model = "";

  std::string Json() const {
    return R"({"version":"1.0","added_tokens":)" + added + R"(,"normalizer":)" + normalizer +
           R"(,"pre_tokenizer":)" + pre_tokenizer + R"(,"post_processor":)" + post_processor +
           R"(,"decoder":)" + decoder + R"(,"model":{"type":"BPE",)" + model + R"("vocab":)" +
           vocab + R"(,"merges":)" + merges + "}}";
  }
};

std::unique_ptr<Tokenizer> Make(const Parts& parts) {
  auto tokenizer = Tokenizer::FromJson(parts.Json(), "", "t.json");
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  return tokenizer.ok() ? std::move(tokenizer).value() : nullptr;
}

std::string ErrorOf(const std::string& json, const std::string& config = "") {
  const auto tokenizer = Tokenizer::FromJson(json, config, "t.json");
  if (tokenizer.ok()) return "loaded";
  EXPECT_EQ(tokenizer.status().code(), StatusCode::kTokenizer);
  return tokenizer.status().message();
}

TEST(TokenizerJson, MergesMayBeStringsOrPairs) {
  Parts parts;
  EXPECT_EQ(Make(parts)->Encode("abcabba"), (Ids{4, 3, 1, 0}));
  parts.merges = R"([["a","b"],["ab","c"]])";
  EXPECT_EQ(Make(parts)->Encode("abcabba"), (Ids{4, 3, 1, 0}));
}

// An entry with escapes takes the slow path, wherever it stands among plain entries.
TEST(TokenizerJson, EntriesWithEscapesStandAmongOthers) {
  for (int form = 0; form < 1 << 6; ++form) {
    const auto spelled = [&](int bit, const std::string& plain, const std::string& escaped) {
      return (form >> bit & 1) != 0 ? escaped : plain;
    };
    Parts parts;
    parts.vocab = "{" + spelled(0, "\"é\"", R"("\u00e9")") + ":0,\n  " +
                  spelled(1, "\"b\"", R"("\u0062")") + " : 1 , " + R"("\"":2,"éb":3,)" +
                  spelled(2, "\"éb€\"", R"("\u00e9b\u20ac")") + ":4,\"€\":5}";
    const std::string left = spelled(3, "é", R"(\u00e9)"), b = spelled(4, "b", R"(\u0062)");
    const std::string euro = spelled(5, "€", R"(\u20ac)");
    for (const bool pairs : {false, true}) {
      const std::string between = pairs ? R"(", ")" : " ", begin = pairs ? "[\"" : "\"",
                        end = pairs ? "\"]" : "\"";
      parts.merges = "[" + begin + left + between + b + end + " ,\n    " + begin + "éb" + between +
                     euro + end + "]";
      const auto tokenizer = Make(parts);
      ASSERT_NE(tokenizer, nullptr) << parts.Json();
      EXPECT_EQ(tokenizer->Encode("éb€éb\"b€é"), (Ids{4, 3, 2, 1, 5, 0})) << parts.Json();
    }
  }
}

TEST(TokenizerJson, LowerRankWinsThenTheLeftmost) {
  Parts parts;
  parts.vocab = R"({"a":0,"b":1,"c":2,"bc":3,"ab":4,"aa":5})";
  parts.merges = R"(["b c","a b","a a"])";
  EXPECT_EQ(Make(parts)->Encode("abc"), (Ids{0, 3}));
  EXPECT_EQ(Make(parts)->Encode("aaa"), (Ids{5, 0}));
  // The long-word path must agree with the short one.
  std::string text;
  Ids expected;
  for (int i = 0; i < 100; ++i) {
    text += "abc";
    expected.insert(expected.end(), {0, 3});
  }
  EXPECT_EQ(Make(parts)->Encode(text), expected);
}

TEST(TokenizerJson, UnknownCharactersFallBackToBytesThenUnkThenNothing) {
  Parts parts;
  EXPECT_EQ(Make(parts)->Encode("aéb"), (Ids{3}));
  parts.model = R"("unk_token":"<unk>",)";
  EXPECT_EQ(Make(parts)->Encode("aééb"), (Ids{0, 5, 5, 1}));
  parts.model = R"("unk_token":"<unk>","fuse_unk":true,)";
  EXPECT_EQ(Make(parts)->Encode("aééb"), (Ids{0, 5, 1}));
  parts.model = R"("unk_token":"<unk>","byte_fallback":true,)";
  EXPECT_EQ(Make(parts)->Encode("aéèb"), (Ids{0, 6, 7, 5, 1}));
}

TEST(TokenizerJson, IgnoreMergesTakesWholeWordsFirst) {
  Parts parts;
  parts.merges = "[]";
  EXPECT_EQ(Make(parts)->Encode("abc"), (Ids{0, 1, 2}));
  parts.model = R"("ignore_merges":true,)";
  EXPECT_EQ(Make(parts)->Encode("abc"), (Ids{4}));
}

TEST(TokenizerJson, DecoderStepsGiveBytesBack) {
  Parts parts;
  parts.decoder = R"({"type":"Sequence","decoders":[
    {"type":"Replace","pattern":{"String":"b"},"content":"B"},{"type":"ByteFallback"},
    {"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]})";
  const auto tokenizer = Make(parts);
  EXPECT_TRUE(tokenizer->StripsLeadingSpace());
  EXPECT_EQ(DecodeTokens(*tokenizer, Ids{8, 8, 3, 6, 7}), " aBé");
}

TEST(TokenizerJson, AddedTokensMatchLeftmostThenLongest) {
  Parts parts;
  parts.added =
      R"([{"id":20,"content":"ab","special":true},{"id":21,"content":"abc!","special":true},
    {"id":22,"content":"bc","special":true,"normalized":false}])";
  // "ab" has an id in the vocabulary already.
  EXPECT_NE(ErrorOf(parts.Json()).find("differs from the vocabulary's"), std::string::npos);
  parts.added =
      R"([{"id":20,"content":"ca","special":true},{"id":21,"content":"cab","special":true},
    {"id":22,"content":"bc","special":true}])";
  const auto tokenizer = Make(parts);
  EXPECT_EQ(tokenizer->EncodeWithSpecials("cabca"), (Ids{21, 20}));
  EXPECT_EQ(tokenizer->EncodeWithSpecials("abca"), (Ids{0, 22, 0}));
  EXPECT_EQ(tokenizer->Encode("cabca"), (Ids{2, 4, 0}));
}

TEST(TokenizerJson, StripFlagsTakeWhiteSpaceAlong) {
  Parts parts;
  parts.added = R"([{"id":20,"content":"<l>","lstrip":true,"special":true},
    {"id":21,"content":"<r>","rstrip":true,"special":true}])";
  const auto tokenizer = Make(parts);
  EXPECT_EQ(tokenizer->EncodeWithSpecials("a \u3000<l> a"), (Ids{0, 20, 8, 0}));
  EXPECT_EQ(tokenizer->EncodeWithSpecials("a <r> \n<l>a"), (Ids{0, 8, 21, 20, 0}));
}

TEST(TokenizerJson, BosComesFromTheTemplateOrTheConfig) {
  Parts parts;
  EXPECT_FALSE(Make(parts)->bos().has_value());
  parts.post_processor = R"({"type":"TemplateProcessing","single":
    [{"SpecialToken":{"id":"<unk>","type_id":0}},{"Sequence":{"id":"A","type_id":0}}]})";
  EXPECT_EQ(Make(parts)->bos(), 5);
  const auto by_config = Tokenizer::FromJson(
      Parts().Json(), R"({"add_bos_token":true,"bos_token":{"content":"abc"}})", "t.json");
  ASSERT_TRUE(by_config.ok());
  EXPECT_EQ((*by_config)->bos(), 4);
}

TEST(TokenizerJson, SyntaxErrorsNameTheByte) {
  EXPECT_EQ(ErrorOf(""), "t.json: invalid JSON at byte 1");
  EXPECT_EQ(ErrorOf("{\"a\": tru}"), "t.json: invalid JSON at byte 10");
  const std::string json = Parts().Json();
  EXPECT_EQ(ErrorOf(json.substr(0, 100)), "t.json: invalid JSON at byte 101");
  EXPECT_EQ(ErrorOf(json, "{"), "t.json: tokenizer_config.json: invalid JSON at byte 2");
  EXPECT_EQ(ErrorOf("[]"), "t.json: is not a JSON object");
  EXPECT_EQ(ErrorOf("{}"), "t.json: no model");
  EXPECT_EQ(ErrorOf(std::string(1 << 20, '[')), "t.json: nested deeper than 64");
}

// Two bytes of text per value could otherwise take a hundred bytes of memory each, without limit.
TEST(TokenizerJson, TooManyValuesAreRefused) {
  std::string list = "[0";
  for (int i = 0; i < 1 << 20; ++i) list += ",0";
  EXPECT_EQ(ErrorOf("{\"added_tokens\":" + list + "]}"), "t.json: more than 1048576 values");
  Parts parts;
  parts.merges = "[\"a b\"";
  for (int i = 0; i < 1 << 22; ++i) parts.merges += ",\"a b\"";
  parts.merges += "]";
  EXPECT_EQ(ErrorOf(parts.Json()), "t.json: model.merges: more than 4194304 entries");
}

TEST(TokenizerJson, UnknownComponentsAreNamed) {
  const struct {
    std::string Parts::*part;
    const char *value, *message;
  } cases[] = {
      {&Parts::normalizer, R"({"type":"NFKC"})", "normalizer \"NFKC\" is not supported"},
      {&Parts::normalizer, R"({"type":"Replace","pattern":{"Regex":"x"},"content":""})",
       "normalizer Replace with a pattern other than {\"String\": text} is not supported"},
      {&Parts::normalizer, R"({"type":"Sequence"})",
       "normalizer Sequence: no array \"normalizers\""},
      {&Parts::normalizer, "5", "normalizer has no type"},
      {&Parts::pre_tokenizer, R"({"type":"Whitespace"})",
       "pre_tokenizer \"Whitespace\" is not supported"},
      {&Parts::pre_tokenizer, R"({"type":"UnicodeScripts"})",
       "pre_tokenizer \"UnicodeScripts\" is not supported"},
      {&Parts::pre_tokenizer, R"({"type":"Split","pattern":{"Regex":"a"},"behavior":"Dropped"})",
       "pre_tokenizer Split: behavior \"Dropped\" is not supported"},
      {&Parts::pre_tokenizer, R"({"type":"Split","pattern":{"Literal":"a"},"behavior":"Removed"})",
       "pre_tokenizer Split with a pattern other than {\"Regex\": text} is not supported"},
      {&Parts::pre_tokenizer, R"({"type":"Metaspace"})",
       "pre_tokenizer Metaspace: no string \"replacement\""},
      {&Parts::pre_tokenizer, R"({"type":"Metaspace","replacement":"_","prepend_scheme":"last"})",
       "pre_tokenizer Metaspace: prepend_scheme \"last\" is not supported"},
      {&Parts::pre_tokenizer,
       R"({"type":"Sequence","pretokenizers":[{"type":"ByteLevel"},{"type":"ByteLevel"}]})",
       "pre_tokenizer \"ByteLevel\" after ByteLevel is not supported"},
      {&Parts::pre_tokenizer, R"({"type":"Split","pattern":{"Regex":"a(b"},"behavior":"Isolated"})",
       "pre_tokenizer Split: regular expression: missing closing parenthesis"},
      {&Parts::post_processor, R"({"type":"BertProcessing"})",
       "post_processor \"BertProcessing\" is not supported"},
      {&Parts::decoder, "null", "a missing decoder is not supported"},
      {&Parts::decoder, R"({"type":"Metaspace"})", "decoder \"Metaspace\" is not supported"},
      {&Parts::model, R"("dropout":0.1,)", "model BPE: dropout is not supported"},
      {&Parts::model, R"("end_of_word_suffix":"</w>",)",
       "model BPE: end_of_word_suffix is not supported"},
      {&Parts::model, R"("unk_token":"<none>",)",
       "model.unk_token \"<none>\" is not in the vocabulary"},
      {&Parts::model, R"("fuse_unk":1,)", "model BPE: \"fuse_unk\" is not true or false"},
      {&Parts::vocab, R"({"a":-1})", "model.vocab: id of \"a\" is out of range"},
      {&Parts::vocab, R"({"a":99999999999})", "model.vocab: id of \"a\" is out of range"},
      {&Parts::vocab, R"({"a":18446744073709551615})", "model.vocab: id of \"a\" is out of range"},
      {&Parts::vocab, R"({"a":"x"})", "model.vocab: value of \"a\" is not a token id"},
      {&Parts::vocab, R"({"a":0,"b":0})", "model.vocab: \"a\" and \"b\" have the same id 0"},
      {&Parts::vocab, R"({"a":0,"a":1})", "model.vocab: \"a\" appears twice"},
      {&Parts::vocab, "{}", "model.vocab is empty"},
      {&Parts::vocab, "[]", "model BPE: bad or missing vocab"},
      {&Parts::merges, R"(["a z"])", "model.merges: entry 0: \"z\" is not in the vocabulary"},
      {&Parts::merges, R"(["a c"])", "model.merges: entry 0: \"ac\" is not in the vocabulary"},
      {&Parts::merges, R"(["a b","ab"])", "model.merges: entry 1 is not a pair of tokens"},
      {&Parts::merges, R"([["a","b","c"]])", "model.merges: entry 1 is not a pair of tokens"},
      {&Parts::merges, R"([["a"]])", "model.merges: entry 0 is not a pair of tokens"},
      {&Parts::merges, R"([7])", "model.merges: entry 0 is not a pair of tokens"},
      {&Parts::merges, R"(["a b","a b"])", "model.merges: entry 1 appears twice"},
      {&Parts::added, R"([{"id":9}])", "added_tokens[0]: no string \"content\""},
      {&Parts::added, R"([{"id":9,"content":""}])", "added_tokens[0]: empty content"},
      {&Parts::added, R"([{"id":1e9,"content":"x"}])", "added_tokens[0] \"x\": bad id"},
      {&Parts::added, R"([{"id":-1,"content":"x"}])", "added_tokens[0] \"x\": bad id"},
      {&Parts::added, R"([{"id":9,"content":"x","single_word":1}])",
       "added_tokens[0]: \"single_word\" is not true or false"},
      {&Parts::added, R"([{"id":9,"content":"x"},{"id":9,"content":"y"}])",
       "added token \"y\": id 9 is taken"},
      {&Parts::added, R"([{"id":9,"content":"x"},{"id":10,"content":"x"}])",
       "added token \"x\" appears twice"},
      {&Parts::added, R"([{"id":1,"content":"x"}])",
       "added token \"x\": id 1 differs from the vocabulary's"},
  };
  for (const auto& item : cases) {
    Parts parts;
    parts.*item.part = item.value;
    EXPECT_EQ(ErrorOf(parts.Json()), std::string("t.json: ") + item.message) << item.value;
  }
}

TEST(TokenizerJson, RefusalsSayWhatIsSupported) {
  Parts parts;
  parts.pre_tokenizer = R"({"type":"UnicodeScripts"})";
  const auto tokenizer = Tokenizer::FromJson(parts.Json(), "", "t.json");
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(
      tokenizer.status().hint(),
      "the pre-tokenizers that are supported are ByteLevel, Digits, Metaspace, Punctuation and "
      "Split");
}

TEST(TokenizerJson, TheConfigsFlagsOfAddedTokensCount) {
  Parts parts;
  parts.added = R"([{"id":20,"content":"<x>","special":true,"normalized":true}])";
  parts.normalizer = R"({"type":"Replace","pattern":{"String":"x"},"content":"a"})";
  const auto ids = [&](const std::string& config, const std::string& text) {
    const auto tokenizer = Tokenizer::FromJson(parts.Json(), config, "t.json");
    EXPECT_TRUE(tokenizer.ok()) << tokenizer.status().message();
    return tokenizer.ok() ? (*tokenizer)->EncodeWithSpecials(text) : Ids();
  };
  const auto config = [](const std::string& entries) {
    return R"({"added_tokens_decoder":{)" + entries + "}}";
  };
  EXPECT_EQ(ids("", "<a>"), Ids{20});
  const std::string raw = R"("20":{"content":"<x>","special":true,"normalized":false})";
  EXPECT_EQ(ids(config(raw), "<a>"), Ids{0});
  EXPECT_EQ(ids(config(raw), "<x>"), Ids{20});
  EXPECT_EQ(ids(config(R"("21":{"content":"<y>","special":true})"), "<y>b<a>"), (Ids{21, 1, 20}));
  // Entries whose id or content belongs to another token are ignored.
  EXPECT_EQ(ids(config(R"("20":{"content":"<y>"},"21":{"content":"<x>"})"), "<a>"), Ids{20});
  EXPECT_EQ(ErrorOf(parts.Json(), config(R"("no":{"content":"<y>"})")),
            "t.json: tokenizer_config.json: bad entry \"no\" of added_tokens_decoder");
}

TEST(TokenizerJson, ReplacementsThatFeedEachOtherAreRefused) {
  const std::string step = R"({"type":"Replace","pattern":{"String":"a"},"content":"aaaaaaaaaa"})";
  Parts parts;
  parts.normalizer = R"({"type":"Sequence","normalizers":[)" + step + "]}";
  EXPECT_EQ(Make(parts)->Encode("a").size(), 10u);
  parts.normalizer = R"({"type":"Sequence","normalizers":[)" + step + "," + step + "]}";
  EXPECT_EQ(ErrorOf(parts.Json()), "t.json: normalizer: text grows too much");
}

// The log has one detail line per tokenizer.
TEST(TokenizerJson, TheLogSaysWhenPcre2KnowsTheLetters) {
  Parts parts;
  const auto log_of = [&parts](const std::string& pattern) {
    parts.pre_tokenizer =
        R"({"type":"Split","behavior":"Isolated","pattern":{"Regex":")" + pattern + "\"}}";
    const test::LogCapture log;
    EXPECT_EQ(Make(parts)->Encode("ab c").size(), 3u);
    return log.text();
  };
  EXPECT_EQ(log_of(R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N})"
                   R"(| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+)"),
            "");
  EXPECT_EQ(log_of(R"('s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+)"
                   R"(|\\s+(?!\\S)|\\s+)"),
            "");
  EXPECT_EQ(log_of(R"(\\p{L}+)"),
            "t.json: the split pattern is not one of those built in; letters and numbers are " +
                SplitRegex::Engine() + "'s\n");
}

// Returns where the JSON library finds the first error; nothing if it finds none.
std::optional<std::string> FirstError(const std::string& json) {
  try {
    const auto ignored = nlohmann::json::parse(json);
  } catch (const nlohmann::json::parse_error& error) {
    return std::to_string(error.byte);
  } catch (const nlohmann::json::out_of_range&) {
    return "of a number beyond double";
  }
  return std::nullopt;
}

TEST(TokenizerJson, DamagedFilesAreRefusedWhereTheJsonLibraryRefusesThem) {
  Parts parts;
  parts.added = R"([{"id":20,"content":"<s>","special":true}])";
  parts.normalizer = R"({"type":"NFC"})";
  parts.pre_tokenizer = R"json({"type":"Split","behavior":"Isolated",
    "pattern":{"Regex":"\\p{L}+|\\s+(?!\\S)"}})json";
  const std::string json = parts.Json();
  const std::string lines = nlohmann::ordered_json::parse(json).dump(1);
  std::mt19937 random(11);
  int loaded = 0, num_invalid = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = round % 2 == 0 ? json : lines;
    for (int i = 1 + random() % 3; i > 0; --i) {
      const size_t pos = random() % damaged.size();
      switch (random() % 3) {
        case 0:
          damaged[pos] = "{}[]\",:0129-\\ aeE<\x80"[random() % 19];
          break;
        case 1:
          damaged.erase(pos, 1 + random() % 8);
          break;
        default:
          damaged.insert(pos, damaged.substr(random() % damaged.size(), random() % 8));
      }
    }
    const auto tokenizer = Tokenizer::FromJson(damaged, "", "t.json");
    const std::optional<std::string> error = FirstError(damaged);
    const std::string begin = "t.json: invalid JSON at byte ";
    if (tokenizer.ok() || !tokenizer.status().message().starts_with(begin)) {
      // Invalid JSON is either reported as such, or has another error before.
      EXPECT_TRUE(!error.has_value() || !tokenizer.ok()) << damaged;
    } else if (!error.has_value() || *error != "of a number beyond double") {
      EXPECT_EQ(tokenizer.status().message(), begin + error.value_or("none")) << damaged;
      ++num_invalid;
    }
    if (!tokenizer.ok()) continue;
    ++loaded;
    (*tokenizer)->EncodeWithSpecials("abc <s>é \xFF");
  }
  EXPECT_GT(loaded, 10);
  EXPECT_GT(num_invalid, 10000);
}

class TokenizerFiles : public ::testing::Test {
 protected:
  void Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ + "/" + name, std::ios::binary) << text;
  }
  const test::TempDir temporary_;
  const std::string dir_ = temporary_.path();
};

TEST_F(TokenizerFiles, LoadsFromADirectoryOrAFile) {
  Write("tokenizer.json", Parts().Json());
  Write("tokenizer_config.json", R"({"add_bos_token":true,"bos_token":"abc"})");
  for (const std::string& path : {dir_, dir_ + "/tokenizer.json"}) {
    const auto tokenizer = test::LoadTokenizer(path);
    ASSERT_NE(tokenizer, nullptr);
    EXPECT_EQ(tokenizer->bos(), 4);
  }
}

TEST_F(TokenizerFiles, ErrorsNameThePath) {
  const auto error = [](const std::string& path) {
    const auto tokenizer = Tokenizer::Load(path);
    return tokenizer.ok() ? "loaded" : tokenizer.status().message();
  };
  EXPECT_EQ(error(dir_), "tokenizer file not found: " + dir_ + "/tokenizer.json");
  EXPECT_EQ(error(dir_ + "/x.json"), "tokenizer file not found: " + dir_ + "/x.json");
  Write("tokenizer.json", "{\"model\":{]");
  EXPECT_EQ(error(dir_), dir_ + "/tokenizer.json: invalid JSON at byte 11");
  Write("bad.model", "this is no model");
  EXPECT_EQ(error(dir_ + "/bad.model").find(dir_ + "/bad.model: not a SentencePiece model"), 0u);
  Write("empty.model", "");
  EXPECT_NE(error(dir_ + "/empty.model"), "loaded");
  std::filesystem::remove(dir_ + "/tokenizer.json");
  EXPECT_EQ(error(dir_), dir_ + " has several .model files: name the tokenizer");
}

std::vector<std::string> SplitAll(const std::string& pattern, const std::string& text) {
  const auto regex = SplitRegex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << regex.status().message();
  std::vector<SplitPart> parts;
  if (regex.ok()) regex->Cut(text, &parts);
  std::vector<std::string> texts;
  for (const SplitPart& part : parts) texts.emplace_back(part.text);
  return texts;
}

TEST(SplitRegex, KeepsWhatLiesBetweenMatches) {
  using Parts = std::vector<std::string>;
  EXPECT_EQ(SplitAll("\\d+", "ab12c3"), (Parts{"ab", "12", "c", "3"}));
  // Empty matches cut too, but not at the end of another match.
  EXPECT_EQ(SplitAll("x*", "axxé"), (Parts{"", "a", "xx", "é", ""}));
  EXPECT_EQ(SplitAll("(?=b)", "abb"), (Parts{"a", "", "b", "", "b"}));
  EXPECT_EQ(SplitAll("x", ""), Parts{});
}

TEST(SplitRegex, WhiteSpaceIsUnicodeWhiteSpace) {
  using Parts = std::vector<std::string>;
  EXPECT_EQ(SplitAll("\\s+", "a\u0085\u00A0\u1680\u2003\u3000b"),
            (Parts{"a", "\u0085\u00A0\u1680\u2003\u3000", "b"}));
  // PCRE2's own \s includes U+180E, Unicode's White_Space does not.
  EXPECT_EQ(SplitAll("\\s+", "a\u180E \u200Bb"), (Parts{"a\u180E", " ", "\u200Bb"}));
  EXPECT_EQ(SplitAll("[\\s]|\\S", "\u180E\u2028"), (Parts{"\u180E", "\u2028"}));
}

TEST(SplitRegex, ClassesInsideAClassAddToIt) {
  using Parts = std::vector<std::string>;
  EXPECT_EQ(SplitAll("[^(\\s|[.,])]+", "a(b .c|d,"),
            (Parts{"a", "(", "b", " .", "c", "|", "d", ","}));
}

TEST(SplitRegex, RefusesWhatTheEnginesReadDifferently) {
  for (const char* pattern :
       {"\\w+",    "\\b",         "\\h",    "a$",    "^a",      ".",     "(?m:a)",
        "(?<n>a)", "[[:alpha:]]", "[a&&b]", "[\\S]", "[a[^b]]", "[a[]]", "a{2}+",
        "{",       "\\",          "[a",     "\\pL",  "\\K",     "(?#c)", "[]a]"}) {
    EXPECT_FALSE(SplitRegex::Compile(pattern).ok()) << pattern;
  }
  EXPECT_FALSE(SplitRegex::Compile(std::string(5000, 'a')).ok());
}

TEST(SplitRegex, SaysWhoseLettersItKnows) {
  EXPECT_EQ(SplitRegex::Engine().find("PCRE2 1"), 0u) << SplitRegex::Engine();
  EXPECT_NE(SplitRegex::Engine().find("(Unicode 1"), std::string::npos) << SplitRegex::Engine();
}

TEST(SplitRegex, RunawayBacktrackingEnds) {
  const std::string text = std::string(64, 'a') + "!";
  const std::vector<std::string> parts = SplitAll("(?:a+)+b", text);
  std::string joined;
  for (const std::string& part : parts) joined += part;
  EXPECT_EQ(joined, text);
}

}  // namespace
}  // namespace kuiper
