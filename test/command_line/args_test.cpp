#include "kuiper/command_line/args.h"

#include <gtest/gtest.h>

#include <optional>

namespace kuiper {
namespace {

using Args = std::vector<std::string>;

// Arguments of a program that has flags of each kind, and where they go.
struct Parsing {
  int max_tokens = 0, max_context = 0;
  std::string prompt, system_prompt;
  std::optional<bool> stream;
  bool raw = false, interactive = false, quiet = false, paged = true, prefix_cache = false;
  int64_t prefix_cache_size = 0;
  float temperature = 0;
  std::vector<std::string> stop;
  int level = 0;
  FlagTable table = Table();
  StatusOr<ParsedArgs> parsed;

  explicit Parsing(const Args& args) : parsed(ParseArgs(args, table)) {}

  FlagTable Table() {
    FlagTable flags;
    flags.flags = {MakeFlag("n,max-tokens", &max_tokens, "tokens", {.min = 1}),
                   MakeFlag("max-context", &max_context, "tokens of one sequence"),
                   MakeFlag("p,prompt", &prompt, "the prompt", {}, "TEXT"),
                   MakeFlag("sys,system-prompt", &system_prompt, "the system message", {}, "TEXT"),
                   MakeFlag("stream", &stream, "print tokens as they come"),
                   MakeFlag("raw", &raw, "no chat template"),
                   MakeFlag("interactive", &interactive, "chat"),
                   MakeFlag("q,quiet", &quiet, "only the answer"),
                   MakeFlag("paged-attention", &paged, "keys and values in blocks"),
                   MakeFlag("prefix-cache", &prefix_cache, "reuse what prompts share"),
                   MakeFlag("prefix-cache-size", &prefix_cache_size, "tokens that are kept"),
                   MakeFlag("temp", &temperature, "temperature"),
                   MakeFlag("stop", &stop, "ends the answer before this text", {}, "TEXT")};
    Flag level_flag = MakeFlag(
        "deterministic", OneOf(&level, {{"off", 0}, {"on", 1}, {"strict", 2}}), "order of sums");
    level_flag.bare_value = "on";
    level_flag.negated_value = "off";
    flags.flags.push_back(level_flag);
    flags.aliases = {{"temperature", "temp"}, {"-c", "max-context"}};
    return flags;
  }
};

ParsedArgs Parse(const Args& args) {
  const Parsing run(args);
  EXPECT_TRUE(run.parsed.ok()) << run.parsed.status().message();
  return run.parsed.ok() ? *run.parsed : ParsedArgs();
}
// The value of a flag that must be given, as --help would print it.
std::string Value(const Args& args, const std::string& name) {
  const Parsing run(args);
  EXPECT_TRUE(run.parsed.ok()) << run.parsed.status().message();
  if (!run.parsed.ok() || !run.parsed->given(name)) return "(absent)";
  return VariableText(run.table.Find(name)->variable, run.table.Find(name)->limits);
}
std::string Error(const Args& args) {
  const Parsing run(args);
  EXPECT_FALSE(run.parsed.ok());
  if (run.parsed.ok()) return "";
  EXPECT_EQ(run.parsed.status().code(), StatusCode::kInvalidArgument);
  return run.parsed.status().message();
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
  EXPECT_EQ(Parsing({"--stop", "a", "--stop=b"}).stop, (Args{"a", "b"}));
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

TEST(Args, MissingValue) {
  EXPECT_EQ(Error({"--prompt"}), "--prompt needs a value");
  EXPECT_EQ(Error({"--prompt", "--"}), "--prompt needs a value");
  EXPECT_EQ(Error({"--prompt", "--stream"}), "--prompt needs a value, but --stream follows");
  EXPECT_EQ(Error({"-p", "-n", "5"}), "-p needs a value, but -n follows");
  EXPECT_EQ(Error({"--prompt", "-q"}), "--prompt needs a value, but -q follows");
  EXPECT_EQ(Error({"-p", "-sys", "x"}), "-p needs a value, but -sys follows");
  EXPECT_EQ(Value({"-p=-n"}, "prompt"), "-n");
  EXPECT_EQ(Value({"-p", "-n is an option"}, "prompt"), "-n is an option");
  EXPECT_EQ(Value({"-p", "-1"}, "prompt"), "-1");
  EXPECT_EQ(Value({"--prompt=--stream"}, "prompt"), "--stream");
  EXPECT_EQ(Value({"--prompt", "- an item"}, "prompt"), "- an item");
}

TEST(Args, HelpStopsParsing) {
  EXPECT_TRUE(Parse({"-h", "--bogus"}).help);
  EXPECT_TRUE(Parse({"--version"}).version);
  EXPECT_EQ(Error({"--help=1"}), "--help takes no value");
}

TEST(Args, AtMostOneOfAGroup) {
  const ParsedArgs args = Parse({"--raw", "--interactive", "--no-stream"});
  EXPECT_EQ(CheckOneOf(args, "prompt interactive raw").message(),
            "--interactive and --raw exclude each other");
  EXPECT_TRUE(CheckOneOf(args, "prompt raw").ok());
  EXPECT_TRUE(CheckOneOf(args, "stream raw").ok());  // it is switched off
}

TEST(Args, WordsAreSplitAsAShellDoes) {
  const auto words = SplitWords(" a 'b  c'\td\"e f\" ''\n");
  ASSERT_TRUE(words.ok());
  EXPECT_EQ(*words, (Args{"a", "b  c", "de f", ""}));
  EXPECT_EQ(SplitWords("a 'b").status().message(), "a quotation mark is missing");
}

TEST(Args, HelpListsFlagsWithTheirDefaults) {
  const std::string help = FlagsHelp(Parsing({"-n", "256"}).table);
  for (const char* line :
       {"  -n, --max-tokens N              tokens (default 256)\n",
        "  --temp F, --temperature         temperature (default 0)\n",
        "  --paged-attention, --no-paged-attention\n"
        "                                  keys and values in blocks (default on)\n",
        "  -h, --help                      this text\n",
        "  --version                       version and compiled devices\n"}) {
    EXPECT_NE(help.find(line), std::string::npos) << line << help;
  }
}

}  // namespace
}  // namespace kuiper
