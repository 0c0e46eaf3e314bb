#include "demo/args.h"

#include <gflags/gflags.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "demo/flag_table.h"
#include "demo/flags.h"

namespace kuiper::demo {
namespace {

using Args = std::vector<std::string>;

ParsedArgs Parse(const Args& args) {
  auto parsed = ParseArgs(args);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return parsed.ok() ? *parsed : ParsedArgs();
}
std::string Value(const Args& args, const std::string& name) {
  const ParsedArgs parsed = Parse(args);
  return parsed.given(name) ? parsed.values.at(name).back() : "(absent)";
}
std::string Error(const Args& args) {
  const auto parsed = ParseArgs(args);
  EXPECT_FALSE(parsed.ok());
  if (parsed.ok()) return "";
  EXPECT_EQ(parsed.status().code(), StatusCode::kInvalidArgument);
  return parsed.status().message();
}

TEST(Args, ValueFollowsOrIsJoined) {
  EXPECT_EQ(Value({"--max-tokens", "7"}, "max-tokens"), "7");
  EXPECT_EQ(Value({"--max-tokens=7"}, "max-tokens"), "7");
  EXPECT_EQ(Value({"-n", "7"}, "max-tokens"), "7");
  EXPECT_EQ(Value({"-n=7"}, "max-tokens"), "7");
  EXPECT_EQ(Value({"--prompt="}, "prompt"), "");
  EXPECT_EQ(Value({"--prompt=a=b"}, "prompt"), "a=b");
}

TEST(Args, PositionalsStandAnywhere) {
  const ParsedArgs parsed = Parse({"M", "--stream", "T", "-n", "3"});
  EXPECT_EQ(parsed.positionals, (Args{"M", "T"}));
}

TEST(Args, DoubleDashEndsOptions) {
  const ParsedArgs parsed = Parse({"--stream", "--", "--raw", "-x"});
  EXPECT_EQ(parsed.positionals, (Args{"--raw", "-x"}));
  EXPECT_FALSE(parsed.given("raw"));
}

TEST(Args, UniquePrefixesAreAccepted) {
  EXPECT_EQ(Value({"--max-tok", "5"}, "max-tokens"), "5");
  EXPECT_EQ(Value({"--inter"}, "interactive"), "true");
  EXPECT_EQ(Value({"--no-paged"}, "paged-attention"), "false");
  // Two spellings of one flag are not ambiguous.
  EXPECT_EQ(Value({"--tempe", "1"}, "temp"), "1");
  EXPECT_EQ(Value({"--temp", "1"}, "temp"), "1");
}

TEST(Args, AmbiguousPrefixIsAnError) {
  const std::string error = Error({"--max", "5"});
  EXPECT_NE(error.find("--max is ambiguous"), std::string::npos) << error;
  EXPECT_NE(error.find("--max-tokens"), std::string::npos) << error;
}

TEST(Args, ExactNameBeatsLongerOnes) {
  EXPECT_EQ(Value({"--prefix-cache"}, "prefix-cache"), "true");
  EXPECT_EQ(Value({"--stop", "x"}, "stop"), "x");
}

TEST(Args, Aliases) {
  EXPECT_EQ(Value({"--page-size", "8"}, "block-size"), "8");
  EXPECT_EQ(Value({"--ctx-size", "8"}, "max-context"), "8");
  EXPECT_EQ(Value({"--max-model-len", "8"}, "max-context"), "8");
  EXPECT_EQ(Value({"-c", "8"}, "max-context"), "8");
  EXPECT_EQ(Value({"--temperature", "0.5"}, "temp"), "0.5");
  EXPECT_EQ(Value({"--enforce-eager"}, "cuda-graph"), "false");
  EXPECT_EQ(Value({"--hide-thinking"}, "show-thinking"), "false");
  EXPECT_EQ(Value({"--enable-thinking", "false"}, "think"), "off");
  EXPECT_EQ(Value({"--enable-thinking=true"}, "think"), "on");
  EXPECT_EQ(Value({"--max_tokens", "4"}, "max-tokens"), "4");
  EXPECT_EQ(Value({"-sys", "S"}, "system-prompt"), "S");
}

TEST(Args, BooleansAndTheirNegation) {
  EXPECT_EQ(Value({"--stream"}, "stream"), "true");
  EXPECT_EQ(Value({"--stream=off"}, "stream"), "false");
  EXPECT_EQ(Value({"--no-stream"}, "stream"), "false");
  EXPECT_EQ(Value({"--no-stream=false"}, "stream"), "true");
  EXPECT_EQ(Error({"--stream=maybe"}), "--stream: 'maybe' is not one of true, false");
}

TEST(Args, OptionalValue) {
  EXPECT_EQ(Value({"--deterministic"}, "deterministic"), "on");
  EXPECT_EQ(Value({"--deterministic", "strict"}, "deterministic"), "strict");
  EXPECT_EQ(Value({"--no-deterministic"}, "deterministic"), "off");
  const ParsedArgs parsed = Parse({"--deterministic", "model"});
  EXPECT_EQ(parsed.positionals, Args{"model"});
}

TEST(Args, LastOneWinsButStopsAdd) {
  EXPECT_EQ(Value({"-n", "1", "-n", "2"}, "max-tokens"), "2");
  EXPECT_EQ(Parse({"--stop", "a", "--stop=b"}).values.at("stop"), (Args{"a", "b"}));
}

TEST(Args, UnknownOptionNamesTheNearest) {
  EXPECT_EQ(Error({"--page-attention"}),
            "unknown option --page-attention; did you mean --paged-attention?");
  EXPECT_EQ(Error({"--steam"}), "unknown option --steam; did you mean --stream?");
  EXPECT_EQ(Error({"--zzzzzzzzzz"}), "unknown option --zzzzzzzzzz");
  EXPECT_EQ(Error({"-z"}), "unknown option -z");
  EXPECT_EQ(Error({"--page-attention=5"}),
            "unknown option --page-attention; did you mean --paged-attention?");
}

TEST(Args, BadValues) {
  EXPECT_EQ(Error({"--attention", "flash3"}),
            "--attention: 'flash3' is not one of mha, flash1, flash2");
  EXPECT_EQ(Error({"--max-tokens", "abc"}), "--max-tokens: 'abc' is not a whole number");
  EXPECT_EQ(Error({"--max-tokens", ""}), "--max-tokens: '' is not a whole number");
  EXPECT_EQ(Error({"--max-tokens", "5x"}), "--max-tokens: '5x' is not a whole number");
  EXPECT_NE(Error({"--max-tokens", "0"}).find("out of range"), std::string::npos);
  EXPECT_NE(Error({"--max-tokens", "99999999999"}).find("out of range"), std::string::npos);
  EXPECT_NE(Error({"--max-tokens", "99999999999999999999"}), "");
  EXPECT_NE(Error({"--max-history", "-1"}).find("out of range"), std::string::npos);
  EXPECT_EQ(Error({"--block-size", "12"}), "--block-size: 12 is not a power of two from 1 to 256");
  EXPECT_NE(Error({"--block-size", "512"}).find("out of range"), std::string::npos);
  EXPECT_EQ(Error({"--temp", "hot"}), "--temp: 'hot' is not a number");
  EXPECT_EQ(Error({"--temp", "nan"}), "--temp: 'nan' is not a number");
  EXPECT_NE(Error({"--top-p", "0"}).find("out of range"), std::string::npos);
  EXPECT_NE(Error({"--top-p", "1.5"}).find("out of range"), std::string::npos);
  EXPECT_EQ(Error({"--device", "gpu"}), "--device: 'gpu' is not one of cpu, simt, cuda:N");
  EXPECT_EQ(Error({"--device", "cuda:x"}), "--device: 'cuda:x' is not one of cpu, simt, cuda:N");
  EXPECT_NE(Error({"--seed", "-1"}).find("is not a whole number"), std::string::npos);
  EXPECT_NE(Error({"--benchmark-prompt-tokens", "256,,5"}), "");
}

TEST(Args, GoodValues) {
  EXPECT_EQ(Value({"--seed", "18446744073709551615"}, "seed"), "18446744073709551615");
  EXPECT_EQ(Value({"--kv-cache-memory", "512M"}, "kv-cache-memory"), "536870912");
  EXPECT_EQ(Value({"--kv-cache-memory", "1.5GiB"}, "kv-cache-memory"), "1610612736");
  EXPECT_EQ(Value({"--kv-cache-memory", "1000"}, "kv-cache-memory"), "1000");
  EXPECT_EQ(Value({"--device", "cuda"}, "device"), "cuda:0");
  EXPECT_EQ(Value({"--reasoning-budget", "-1"}, "reasoning-budget"), "-1");
}

TEST(Args, MissingValue) {
  EXPECT_EQ(Error({"--prompt"}), "--prompt needs a value");
  EXPECT_EQ(Error({"--prompt", "--"}), "--prompt needs a value");
  EXPECT_EQ(Error({"--prompt", "--stream"}), "--prompt needs a value, but --stream follows");
  EXPECT_EQ(Value({"--prompt=--stream"}, "prompt"), "--stream");
  EXPECT_EQ(Value({"--prompt", "- an item"}, "prompt"), "- an item");
}

TEST(Args, FeaturesThatDoNotExistSaySo) {
  EXPECT_EQ(Error({"--kv-cache-dtype", "fp8"}),
            "--kv-cache-dtype: 'fp8' is not one of auto, fp16, int8");
  EXPECT_EQ(Error({"--speculative", "ngram"}),
            "--speculative ngram is not available in this version");
  EXPECT_EQ(Value({"--speculative", "none"}, "speculative"), "none");
  EXPECT_EQ(Error({"--speculative=ngram"}), "--speculative ngram is not available in this version");
  EXPECT_EQ(Error({"--json-schema", "{}"}), "--json-schema is not available in this version");
  EXPECT_EQ(Error({"--image", "a.png"}), "--image is not available: this program takes text only");
  EXPECT_EQ(Error({"--max-pixel", "500000"}),
            "--max-pixel is not available: this program takes text only");
}

TEST(Args, HelpStopsParsing) {
  EXPECT_TRUE(Parse({"-h", "--bogus"}).help);
  EXPECT_TRUE(Parse({"--version"}).version);
  EXPECT_EQ(Error({"--help=1"}), "--help takes no value");
}

TEST(Args, JsonIsNoticedDespiteErrors) {
  EXPECT_TRUE(AsksForJson({"--bogus", "-o", "json"}));
  EXPECT_TRUE(AsksForJson({"--output-format=jsonl"}));
  EXPECT_FALSE(AsksForJson({"-o", "json", "-o", "text"}));
  EXPECT_FALSE(AsksForJson({"--", "-o", "json"}));
}

// The table and the gflags variables are two lists of the same flags.
TEST(Args, EveryFlagHasItsVariable) {
  std::set<std::string> names;
  for (const FlagGroup& group : FlagGroups()) {
    for (const FlagSpec& flag : group.flags) {
      EXPECT_TRUE(names.insert(flag.name).second) << flag.name << " is listed twice";
      std::string variable = flag.name;
      std::replace(variable.begin(), variable.end(), '-', '_');
      gflags::CommandLineFlagInfo info;
      ASSERT_TRUE(gflags::GetCommandLineFlagInfo(variable.c_str(), &info)) << variable;
      EXPECT_EQ(info.type == "bool", flag.kind == FlagKind::kBool) << flag.name;
      EXPECT_EQ(flag.use == FlagUse::kWorks, flag.why[0] == '\0') << flag.name;
    }
  }
  for (const FlagAlias& alias : FlagAliases()) EXPECT_NE(FindFlag(alias.name), nullptr);
}

TEST(Args, EachProgramTakesItsOwnFlags) {
  const Args batch = {"M", "-i", "in", "-o", "out", "--max-num-seqs", "4", "-n", "3"};
  const auto parsed = ParseArgs(batch, FlagPrograms::kBatch);
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  EXPECT_EQ(parsed->values.at("input").back(), "in");
  EXPECT_EQ(parsed->values.at("output").back(), "out");
  EXPECT_EQ(parsed->values.at("max-tokens").back(), "3");
  EXPECT_FALSE(ParseArgs({"--max-num-seqs", "4"}, FlagPrograms::kText).ok());
  EXPECT_FALSE(ParseArgs({"--prompt", "x"}, FlagPrograms::kBatch).ok());
  EXPECT_FALSE(ParseArgs({"--hide-thinking"}, FlagPrograms::kBatch).ok());
  // A short name may mean another flag of another program, but one flag in each.
  for (FlagPrograms program : {FlagPrograms::kText, FlagPrograms::kBatch}) {
    std::set<std::string> shorts;
    for (const FlagGroup& group : FlagGroups()) {
      for (const FlagSpec& flag : group.flags) {
        if (flag.short_name[0] == '\0' || !flag.TakenBy(program)) continue;
        EXPECT_TRUE(shorts.insert(flag.short_name).second) << flag.short_name;
      }
    }
  }
}

TEST(Args, StoredValuesReachGflags) {
  gflags::FlagSaver saver;
  StoreFlags(Parse({"-n", "9", "--temp", "0.25", "--no-stats", "--kv-cache-memory", "1G"}));
  EXPECT_EQ(FLAGS_max_tokens, 9);
  EXPECT_EQ(FLAGS_temp, 0.25);
  EXPECT_FALSE(FLAGS_stats);
  EXPECT_EQ(FLAGS_kv_cache_memory, uint64_t{1} << 30);
}

}  // namespace
}  // namespace kuiper::demo
