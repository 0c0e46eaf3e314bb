#include "demo/flags.h"

#include <gtest/gtest.h>

#include <set>

namespace kuiper::demo {
namespace {

constexpr FlagPrograms kEachProgram[] = {
    FlagPrograms::kText,  FlagPrograms::kVision, FlagPrograms::kAnyModel, FlagPrograms::kBatch,
    FlagPrograms::kServe, FlagPrograms::kEval,   FlagPrograms::kQuantize,
};

using Args = std::vector<std::string>;

// Arguments, and where they go.
struct Parsing {
  Options options;
  StatusOr<ParsedArgs> parsed;

  explicit Parsing(const Args& args, FlagPrograms program = FlagPrograms::kText)
      : parsed(ParseArgs(args, FlagsOf(program, options))) {}
};

// The value of a flag that must be given, as --help would print it.
std::string Value(const Args& args, const std::string& name) {
  Parsing run(args);
  EXPECT_TRUE(run.parsed.ok()) << run.parsed.status().message();
  if (!run.parsed.ok() || !run.parsed->given(name)) return "(absent)";
  const FlagTable table = FlagsOf(FlagPrograms::kText, run.options);
  return VariableText(table.Find(name)->variable, table.Find(name)->limits);
}
std::string Error(const Args& args) {
  const Parsing run(args);
  EXPECT_FALSE(run.parsed.ok());
  if (run.parsed.ok()) return "";
  EXPECT_EQ(run.parsed.status().code(), StatusCode::kInvalidArgument);
  return run.parsed.status().message();
}

TEST(Flags, Aliases) {
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

TEST(Flags, BadValues) {
  EXPECT_EQ(Error({"--attention", "flash3"}),
            "--attention: 'flash3' is not one of auto, mha, flash1, flash2");
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
  EXPECT_NE(Error({"--seed", "-2x"}).find("is not a whole number"), std::string::npos);
  EXPECT_NE(Error({"--benchmark-prompt-tokens", "256,,5"}), "");
}

TEST(Flags, GoodValues) {
  EXPECT_EQ(Value({"--seed", "18446744073709551614"}, "seed"), "18446744073709551614");
  EXPECT_EQ(Value({"--seed", "-2"}, "seed"), Value({"--seed", "-1"}, "seed"));
  EXPECT_EQ(Value({"--kv-cache-memory", "512M"}, "kv-cache-memory"), "536870912");
  EXPECT_EQ(Value({"--kv-cache-memory", "1.5GiB"}, "kv-cache-memory"), "1610612736");
  EXPECT_EQ(Value({"--kv-cache-memory", "1000"}, "kv-cache-memory"), "1000");
  EXPECT_EQ(Value({"--device", "cuda"}, "device"), "cuda:0");
  EXPECT_EQ(Value({"--reasoning-budget", "-1"}, "reasoning-budget"), "-1");
  EXPECT_EQ(Value({"--reasoning-budget", "auto"}, "reasoning-budget"), "auto");
}

TEST(Flags, FeaturesThatDoNotExistSaySo) {
  EXPECT_EQ(Error({"--kv-cache-dtype", "int4"}),
            "--kv-cache-dtype: 'int4' is not one of auto, fp16, bf16, fp32, int8, fp8, fp8_e4m3, "
            "fp8_e5m2");
  EXPECT_EQ(Error({"--speculative", "ngram"}),
            "--speculative ngram is not available in this version");
  EXPECT_EQ(Value({"--speculative", "none"}, "speculative"), "none");
  EXPECT_EQ(Error({"--num-speculative-tokens", "8"}),
            "--num-speculative-tokens 8 is not available in this version");
  EXPECT_EQ(Value({"--num-speculative-tokens", "0"}, "num-speculative-tokens"), "0");
  EXPECT_EQ(Error({"--speculative=ngram"}), "--speculative ngram is not available in this version");
  EXPECT_EQ(Error({"--json-schema", "{}"}), "--json-schema is not available in this version");
  EXPECT_EQ(Error({"--image", "a.png"}), "--image is not available: this program takes text only");
  EXPECT_EQ(Error({"--max-pixel", "500000"}),
            "--max-pixel is not available: this program takes text only");
  const std::string ambiguous = Error({"--max", "5"});
  EXPECT_NE(ambiguous.find("is ambiguous: --max-tokens"), std::string::npos) << ambiguous;
  EXPECT_EQ(ambiguous.find("pixels"), std::string::npos) << ambiguous;
}

TEST(Flags, NamesOfLlamaCpp) {
  const Parsing run({"M",           "-t",
                     "3",           "-n",
                     "-1",          "-s",
                     "7",           "-r",
                     "END",         "--repeat-penalty",
                     "1.25",        "-ngl",
                     "99",          "--n-gpu-layers",
                     "all",         "--mlock",
                     "--no-mmap",   "-cnv",
                     "--no-warmup", "--context-shift",
                     "--color"});
  ASSERT_TRUE(run.parsed.ok()) << run.parsed.status().message();
  const Options& o = run.options;
  EXPECT_EQ(o.engine.ops.num_threads, 3);
  EXPECT_EQ(o.request.max_new_tokens, INT32_MAX);
  EXPECT_EQ(o.request.sampling.seed, 7u);
  EXPECT_EQ(o.request.stop, std::vector<std::string>{"END"});
  EXPECT_EQ(o.request.sampling.repetition_penalty, 1.25f);
  EXPECT_TRUE(o.wants.chat);
  EXPECT_FALSE(o.engine.warm_up.value_or(true));
  EXPECT_EQ(o.engine.on_full, OnFull::kSlide);
  EXPECT_EQ(o.color, ColorMode::kAlways);
  EXPECT_EQ(Value({"--predict=-1"}, "max-tokens"), "-1");
  EXPECT_EQ(
      Error({"-n", "0"}),
      "-n: 0 is out of range (must be at least 1 and at most 2147483647, or -1 for no limit)");
  EXPECT_EQ(Error({"-b", "512"}), "-b is --max-num-batched-tokens here");
  EXPECT_EQ(Error({"--cache-type-k=q8_0"}),
            "--cache-type-k is --kv-cache-dtype here, of keys and values");
  EXPECT_EQ(Error({"-fa"}), "-fa is --attention here");
  EXPECT_NE(Error({"--mirostat", "2"}).find("is not available"), std::string::npos);
  EXPECT_NE(Error({"-hf", "a/b"}).find("tools/get_model.sh"), std::string::npos);
  const auto notes = ReadOptions({"M", "-p", "x", "-ngl", "99"});
  ASSERT_TRUE(notes.ok());
  EXPECT_EQ(notes->notes, std::vector<std::string>{
                              "--gpu-layers has no effect: --device has all layers or none"});
  // A name that does nothing makes none ambiguous.
  EXPECT_TRUE(Parsing({"--gpu", "0.5"}).parsed.ok());
}

TEST(Flags, ShortNamesOfTheProgramForPictures) {
  const Parsing run({"M", "-i", "a.png", "-x", "500000", "-m", "7", "-a", "mha", "-s", "-g", "-P",
                     "-p", "text", "--video", "v", "--image=b.png"},
                    FlagPrograms::kVision);
  ASSERT_TRUE(run.parsed.ok()) << run.parsed.status().message();
  const Options& o = run.options;
  EXPECT_EQ(o.image.max_pixels, 500000);
  EXPECT_EQ(o.request.max_new_tokens, 7);
  EXPECT_EQ(o.engine.ops.attention, AttentionKind::kMha);
  EXPECT_TRUE(o.stream.value_or(false));
  EXPECT_TRUE(o.engine.use_graph);
  EXPECT_TRUE(o.engine.paged);
  EXPECT_FALSE(o.wants.chat);
  EXPECT_EQ(o.media_paths, (std::vector<std::string>{"a.png", "v", "b.png"}));
  const Parsing other({"M", "-n", "9", "--interactive", "--max-pixel", "model"},
                      FlagPrograms::kVision);
  ASSERT_TRUE(other.parsed.ok()) << other.parsed.status().message();
  EXPECT_EQ(other.options.request.max_new_tokens, 9);
  EXPECT_TRUE(other.options.wants.chat);
  EXPECT_FALSE(other.options.image.max_pixels.has_value());
  EXPECT_FALSE(Parsing({"--image-max-tokens", "0"}, FlagPrograms::kVision).parsed.ok());
  EXPECT_FALSE(Parsing({"--video-fps", "0"}, FlagPrograms::kVision).parsed.ok());
}

TEST(Flags, JsonIsNoticedDespiteErrors) {
  EXPECT_TRUE(AsksForJson({"--bogus", "-o", "json"}));
  EXPECT_TRUE(AsksForJson({"--output-format=jsonl"}));
  EXPECT_FALSE(AsksForJson({"-o", "json", "-o", "text"}));
  EXPECT_FALSE(AsksForJson({"--", "-o", "json"}));
}

TEST(Flags, EachFlagStandsOnce) {
  for (const FlagPrograms program : kEachProgram) {
    Options options;
    const FlagTable table = FlagsOf(program, options);
    std::set<std::string> names;
    for (const Flag& flag : table.flags) {
      EXPECT_TRUE(names.insert(flag.name).second) << flag.name << " is listed twice";
      EXPECT_EQ(flag.use == FlagUse::kWorks, flag.why.empty()) << flag.name;
      EXPECT_EQ(flag.use == FlagUse::kWorks, !flag.help.empty()) << flag.name;
      EXPECT_EQ(flag.use == FlagUse::kWorks && flag.value_name.empty(),
                flag.use == FlagUse::kWorks && IsSwitch(flag.variable))
          << flag.name;
    }
    for (const FlagAlias& alias : table.aliases) EXPECT_FALSE(names.contains(alias.alias));
  }
}

// What --help prints is what a run without flags does.
TEST(Flags, DefaultsAreWhatIsStored) {
  Options options;
  const std::string help = FlagsHelp(FlagsOf(FlagPrograms::kText, options));
  for (const char* line :
       {"  -n, --max-tokens N              tokens to generate at most; -1 = up to the\n"
        "                                  end of the context (default 256)\n",
        "  --temp F, --temperature         temperature, 0 = greedy (default 0)\n",
        "  --stats, --no-stats             statistics on stderr (default on)\n",
        "  --kv-cache-dtype auto|fp16|bf16|fp32|int8|fp8|fp8_e4m3|fp8_e5m2\n"
        "                                  type of keys and values (default auto)\n"}) {
    EXPECT_NE(help.find(line), std::string::npos) << line;
  }
  for (const char* name : {"--image", "--mlock", "--fused-ffn", "--predict", "--batch-size"}) {
    EXPECT_EQ(help.find(name), std::string::npos) << name;
  }
  Options seeing;
  const std::string pictures = FlagsHelp(FlagsOf(FlagPrograms::kVision, seeing));
  for (const char* line :
       {"  -i, --image PATH                picture of the first message, a file or a\n",
        "  -m, --max-tokens N, -n          tokens to generate at most; -1 = up to the\n",
        "  -x, --max-pixels N|model        larger pictures, and frames of videos, are\n"
        "                                  scaled down to this; model = as its file says\n"
        "                                  (default 1003520)\n"}) {
    EXPECT_NE(pictures.find(line), std::string::npos) << line << pictures;
  }
  EXPECT_EQ(help.find("--max-num-seqs"), std::string::npos);
}

TEST(Flags, EachProgramTakesItsOwnFlags) {
  const Parsing batch({"M", "-i", "in", "-o", "out", "--max-num-seqs", "4", "-n", "3"},
                      FlagPrograms::kBatch);
  ASSERT_TRUE(batch.parsed.ok()) << batch.parsed.status().message();
  EXPECT_EQ(batch.options.batch_input, "in");
  EXPECT_EQ(batch.options.batch_output, "out");
  EXPECT_EQ(batch.options.engine.max_num_seqs, 4);
  EXPECT_EQ(batch.options.request.max_new_tokens, 3);
  EXPECT_FALSE(Parsing({"--max-num-seqs", "4"}, FlagPrograms::kText).parsed.ok());
  EXPECT_FALSE(Parsing({"--prompt", "x"}, FlagPrograms::kBatch).parsed.ok());
  EXPECT_FALSE(Parsing({"--hide-thinking"}, FlagPrograms::kBatch).parsed.ok());
  // A short name may mean another flag of another program, but one flag in each.
  for (const FlagPrograms program : kEachProgram) {
    Options options;
    std::set<std::string> shorts;
    for (const Flag& flag : FlagsOf(program, options).flags) {
      if (flag.short_name.empty()) continue;
      EXPECT_TRUE(shorts.insert(flag.short_name).second) << flag.short_name;
    }
  }
}

TEST(Flags, ValuesReachTheirVariables) {
  const Parsing run({"-n", "9", "--temp", "0.25", "--no-stats", "--kv-cache-memory", "1G"});
  EXPECT_EQ(run.options.request.max_new_tokens, 9);
  EXPECT_EQ(run.options.request.sampling.temperature, 0.25f);
  EXPECT_FALSE(run.options.stats);
  EXPECT_EQ(run.options.engine.kv_cache_bytes, size_t{1} << 30);
}

}  // namespace
}  // namespace kuiper::demo
