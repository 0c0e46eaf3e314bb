#include "demo/options.h"

#include <gtest/gtest.h>

#include "demo/answer.h"
#include "demo/program.h"
#include "kuiper/chat/chat_response.h"
#include "kuiper/command_line/exit_code.h"

namespace kuiper::demo {
namespace {

Options Good(const std::vector<std::string>& args) {
  auto options = ReadOptions(args);
  EXPECT_TRUE(options.ok()) << options.status().message();
  return options.ok() ? *options : Options();
}
std::string Error(const std::vector<std::string>& args) {
  const auto options = ReadOptions(args);
  EXPECT_FALSE(options.ok());
  EXPECT_EQ(options.status().code(), StatusCode::kInvalidArgument);
  return options.status().message();
}

TEST(Options, DefaultsOfTheContract) {
  const Options o = Good({"M"});
  EXPECT_EQ(o.task, Task::kAnswer);
  EXPECT_EQ(o.engine.model_path, "M");
  EXPECT_EQ(o.engine.tokenizer_path, "");
  EXPECT_FALSE(o.engine.paged);
  EXPECT_FALSE(o.engine.prefix_cache);
  EXPECT_EQ(o.engine.page_size, 16);
  EXPECT_EQ(o.engine.max_context, 0);
  EXPECT_EQ(o.engine.max_num_batched_tokens, 512);
  EXPECT_EQ(o.request.max_new_tokens, 256);
  EXPECT_EQ(o.request.sampling.temperature, 0.f);
  EXPECT_EQ(o.request.reasoning_budget, -1);
  EXPECT_FALSE(o.think.has_value());
  EXPECT_FALSE(o.stream.has_value());
  EXPECT_EQ(o.max_history, 10);
  EXPECT_EQ(o.format, OutputFormat::kText);
  EXPECT_EQ(o.benchmark_prompts, (std::vector<int>{256, 512, 1024, 2048, 4096}));
  EXPECT_TRUE(o.notes.empty());
}

TEST(Options, ModelAndTokenizerMayBeFlags) {
  EXPECT_EQ(Good({"M", "T"}).engine.tokenizer_path, "T");
  const Options o = Good({"-m", "M", "T"});
  EXPECT_EQ(o.engine.model_path, "M");
  EXPECT_EQ(o.engine.tokenizer_path, "T");
  EXPECT_EQ(Error({}), "no model given");
  EXPECT_EQ(Error({"M", "T", "X"}), "unexpected argument 'X'");
}

TEST(Options, AnArgumentThatIsNoPathIsThePrompt) {
  const auto read = [](FlagPrograms program, std::vector<std::string> args) {
    args.insert(args.begin(), "M");
    const auto options = ReadOptions(args, program);
    EXPECT_TRUE(options.ok()) << options.status().message();
    return std::pair(options->engine.tokenizer_path, options->prompt.value_or("none"));
  };
  using Pair = std::pair<std::string, std::string>;
  using enum FlagPrograms;
  for (const FlagPrograms program : {kText, kVision, kAnyModel}) {
    EXPECT_EQ(read(program, {"two words"}), Pair("", "two words"));
    EXPECT_EQ(read(program, {"a.json", "1/2 of a.json"}), Pair("a.json", "1/2 of a.json"));
    EXPECT_EQ(read(program, {"--tokenizer", "T", "two words"}), Pair("T", "two words"));
    EXPECT_EQ(read(program, {"a/b"}), Pair("a/b", "none"));
    EXPECT_EQ(read(program, {"/"}), Pair("/", "none"));
    const bool is_kuiper = program == kAnyModel;
    EXPECT_EQ(read(program, {"word"}), is_kuiper ? Pair("", "word") : Pair("word", "none"));
  }
  EXPECT_EQ(read(kServe, {"two words"}), Pair("two words", "none"));
  EXPECT_EQ(Error({"M", "two words", "-p", "x"}),
            "the prompt 'two words' and --prompt exclude each other");
  EXPECT_EQ(Error({"M", "two words", "x"}), "unexpected argument 'x'");
}

TEST(Options, PicturesKeepTheirOrder) {
  using Kind = ContentPart::Kind;
  const auto o =
      ReadOptions({"M", "--image", "a", "--video", "b", "--image", "c", "--video-fps", "2"},
                  FlagPrograms::kAnyModel);
  ASSERT_TRUE(o.ok()) << o.status().message();
  ASSERT_EQ(o->media.size(), 3u);
  const std::pair<Kind, const char*> expected[] = {
      {Kind::kImage, "a"}, {Kind::kVideo, "b"}, {Kind::kImage, "c"}};
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(o->media[i].kind, expected[i].first) << i;
    EXPECT_EQ(o->media[i].text, expected[i].second) << i;
    EXPECT_EQ(o->media[i].fps.has_value(), o->media[i].kind == Kind::kVideo) << i;
  }
  EXPECT_EQ(o->image.max_pixels, 1003520);
}

TEST(Options, WhatHappensWhenTheCacheIsFull) {
  const Options plain = Good({"M"});
  EXPECT_EQ(plain.engine.on_full, OnFull::kPreempt);
  EXPECT_EQ(plain.engine.preemption, Preemption::kRecompute);
  const Options o =
      Good({"M", "--on-full", "slide", "--preemption", "auto", "--swap-space", "512M"});
  EXPECT_EQ(o.engine.on_full, OnFull::kSlide);
  EXPECT_EQ(o.engine.preemption, Preemption::kAuto);
  EXPECT_EQ(o.engine.swap_bytes, size_t{512} << 20);
  EXPECT_EQ(Good({"M", "--on-full", "stop"}).engine.on_full, OnFull::kStop);
  EXPECT_EQ(Good({"M", "--preemption", "swap"}).engine.preemption, Preemption::kSwap);
}

TEST(Options, QuietMeansRawAndWarnings) {
  const Options o = Good({"M", "-q"});
  EXPECT_EQ(o.format, OutputFormat::kRaw);
  EXPECT_EQ(o.log_level, LogLevel::kWarning);
  EXPECT_EQ(Good({"M", "-q", "-o", "json"}).format, OutputFormat::kJson);
  EXPECT_EQ(Good({"M", "-q", "--log-level", "debug"}).log_level, LogLevel::kDebug);
}

TEST(Options, WhatExcludesEachOther) {
  EXPECT_EQ(Error({"M", "-p", "x", "-f", "y"}), "--prompt and --file exclude each other");
  EXPECT_EQ(Error({"M", "-p", "x", "--messages", "y"}),
            "--prompt and --messages exclude each other");
  EXPECT_EQ(Error({"M", "-i", "--tokenize"}), "--interactive and --tokenize exclude each other");
  EXPECT_EQ(Error({"M", "--benchmark", "-p", "x"}), "--benchmark and --prompt exclude each other");
  EXPECT_EQ(Error({"M", "--logprobs", "2"}), "--logprobs needs --output-format json or jsonl");
  EXPECT_EQ(Error({"M", "--stop", ""}), "--stop: the string is empty");
  Good({"M", "-p", "x", "--no-interactive", "--raw"});
}

TEST(Options, DeterminismIsOnUnlessSaidOtherwise) {
  EXPECT_EQ(Good({"M"}).engine.ops.determinism, Determinism::kOn);
  EXPECT_EQ(Good({"M", "--deterministic"}).engine.ops.determinism, Determinism::kOn);
  EXPECT_EQ(Good({"M", "--deterministic", "strict"}).engine.ops.determinism, Determinism::kStrict);
  EXPECT_EQ(Good({"M", "--no-deterministic"}).engine.ops.determinism, Determinism::kOff);
}

TEST(Options, FlagsWithoutEffectLeaveOneNoteEach) {
  const Options o = Good({"M", "--fused-rope-kv", "--fused-gqa", "--no-fused-ffn"});
  ASSERT_EQ(o.notes.size(), 3u);
  EXPECT_EQ(o.notes[0].find("--no-fused-ffn has no effect"), 0u) << o.notes[0];
  EXPECT_EQ(Good({"M", "--num-blocks", "8"}).notes.size(), 1u);
  EXPECT_TRUE(Good({"M", "--num-blocks", "8", "--paged-attention"}).notes.empty());
  EXPECT_TRUE(Good({"M", "--num-blocks", "8", "--verify-paged"}).notes.empty());
  EXPECT_EQ(Good({"M", "--top-p", "0.9"}).notes,
            std::vector<std::string>{"--top-p has no effect without --temp: decoding is greedy"});
  EXPECT_TRUE(Good({"M", "--top-p", "0.9", "--temp", "1"}).notes.empty());
  EXPECT_TRUE(Good({"M", "--top-p", "0.9", "--use-generation-config"}).notes.empty());
  EXPECT_TRUE(Good({"M", "--top-p", "0.9", "-i"}).notes.empty()) << "/set temp";
  EXPECT_EQ(Good({"M", "--max-history", "3"}).notes.size(), 1u);
  EXPECT_TRUE(Good({"M", "--max-history", "3", "--session", "s"}).notes.empty());
  EXPECT_EQ(Good({"M", "--repetitions", "3"}).notes.size(), 1u);
  EXPECT_TRUE(Good({"M", "--repetitions", "3", "--benchmark"}).notes.empty());
  EXPECT_EQ(Good({"M", "--swap-space", "1G"}).notes.size(), 1u);
  EXPECT_EQ(Good({"M", "--dump-tokens", "f", "--stats-json", "g", "--dry-run"}).notes.size(), 2u);
  EXPECT_TRUE(Good({"M", "--dump-tokens", "f", "--stats-json", "g"}).notes.empty());
  for (const char* flag : {"--trace-kv", "--dump-block-table"}) {
    EXPECT_EQ(Good({"M", flag, "f"}).notes,
              std::vector{flag + std::string(" has no effect without --paged-attention")});
    EXPECT_EQ(Good({"M", flag, "f", "--verify-paged"}).notes,
              std::vector{flag + std::string(" has no effect where no answer is printed")});
    EXPECT_TRUE(Good({"M", flag, "f", "--paged-attention"}).notes.empty());
  }
}

TEST(Options, GraphOnTheCpuOnlyWhenAskedFor) {
  EXPECT_FALSE(Good({"M"}).args.on("cuda-graph"));
  EXPECT_TRUE(Good({"M", "--cuda-graph"}).args.on("cuda-graph"));
  EXPECT_FALSE(Good({"M", "--cuda-graph", "--enforce-eager"}).args.on("cuda-graph"));
}

TEST(ExitCode, FollowsTheKindOfError) {
  EXPECT_EQ(ExitCodeOf(StatusCode::kOk), 0);
  EXPECT_EQ(ExitCodeOf(StatusCode::kInternal), 1);
  EXPECT_EQ(ExitCodeOf(StatusCode::kInvalidArgument), 2);
  EXPECT_EQ(ExitCodeOf(StatusCode::kModel), 3);
  EXPECT_EQ(ExitCodeOf(StatusCode::kTokenizer), 4);
  EXPECT_EQ(ExitCodeOf(StatusCode::kInput), 5);
  EXPECT_EQ(ExitCodeOf(StatusCode::kContextExceeded), 6);
  EXPECT_EQ(ExitCodeOf(StatusCode::kResourceExhausted), 7);
  EXPECT_EQ(ExitCodeOf(StatusCode::kUnavailable), 8);
  EXPECT_STREQ(ErrorName(StatusCode::kContextExceeded), "context_length_exceeded");
  EXPECT_EQ(FlagName("num_blocks"), "--num-blocks");
}

TEST(ExitCode, OfAnAnswer) {
  AnswerResult result;
  EXPECT_EQ(ExitCodeOf(result), 0);
  result.completion.finish = FinishReason::kInterrupt;
  EXPECT_EQ(ExitCodeOf(result), 130);
  result.completion.finish = FinishReason::kContext;
  result.completion.tokens = {1};
  result.status = Status(StatusCode::kResourceExhausted, "KV cache is full");
  EXPECT_EQ(ExitCodeOf(result), 0);
  result.completion.tokens.clear();
  EXPECT_EQ(ExitCodeOf(result), 7);
}

TEST(ModelName, IsTheLastPartOfThePath) {
  EXPECT_EQ(ModelName("/a/Qwen3-8B-awq"), "Qwen3-8B-awq");
  EXPECT_EQ(ModelName("/a/Qwen3-8B-awq/"), "Qwen3-8B-awq");
  EXPECT_EQ(ModelName("/a/b/../Qwen3.bin"), "Qwen3");
  EXPECT_EQ(ModelName("/a/Qwen2.5-7B"), "Qwen2.5-7B");
  EXPECT_EQ(ModelName("/a/model.safetensors"), "model");
}

}  // namespace
}  // namespace kuiper::demo
