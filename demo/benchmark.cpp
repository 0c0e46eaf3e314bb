// --benchmark: prefill and decode speed for several prompt lengths, as CSV on stdout.
#include <string>
#include <utility>

#include "demo/tasks.h"
#include "kuiper/command_line/exit_code.h"
#include "kuiper/report/benchmark_csv.h"

namespace kuiper::demo {
namespace {

// Returns a text of exactly `count` tokens, the same in every run. Numbers in it keep a prefix
// cache from matching one prompt to another.
std::vector<int32_t> SyntheticPrompt(const Tokenizer& tokenizer, int count, int repetition) {
  std::vector<int32_t> ids;
  for (int i = 0; static_cast<int>(ids.size()) < count; ++i) {
    const std::string sentence = "Run " + std::to_string(repetition) + ", length " +
                                 std::to_string(count) + ", sentence " + std::to_string(i) +
                                 ": the quick brown fox jumps over the lazy dog.\n";
    const std::vector<int32_t> more = tokenizer.Encode(sentence);
    ids.insert(ids.end(), more.begin(), more.end());
  }
  ids.resize(count);
  return ids;
}

// Returns the images and videos of the options, which precede the text of each prompt.
StatusOr<Prompt> PicturePrompt(const ProgramRun& run) {
  if (run.options.media.empty()) return Prompt();
  Message message;
  KU_ASSIGN_OR_RETURN(message.parts, ReadMedia(run, {.media = run.options.media}));
  std::string places;
  for (const ContentPart& part : message.parts) {
    const bool is_video = part.kind == ContentPart::Kind::kVideo;
    places +=
        std::string("<|vision_start|><|") + (is_video ? "video" : "image") + "_pad|><|vision_end|>";
  }
  message.parts.push_back({.text = places});
  return RawPrompt(*run.tokenizer, ChatTemplateOf(run, {}), message);
}

StatusOr<AnswerResult> Measure(ProgramRun& run, Engine& engine, const Prompt& pictures,
                               int prompt_tokens, int repetition) {
  Request request = MakeRequest(pictures, {});
  const int num_text = prompt_tokens - static_cast<int>(pictures.ids.size());
  const std::vector<int32_t> text = SyntheticPrompt(*engine.tokenizer(), num_text, repetition);
  request.prompt.insert(request.prompt.end(), text.begin(), text.end());
  request.sampling = run.options.request.sampling;
  request.max_new_tokens = run.options.benchmark_decode;
  request.ignore_eos = true;
  AnswerResult result;
  result.model = ModelName(run.options.engine.model_path);
  const auto on_event = [&](const TokenEvent&) { return run.console.output_status().ok(); };
  KU_ASSIGN_OR_RETURN(std::vector<Completion> one,
                      RunSamples(engine, std::move(request), on_event));
  result.completion = std::move(one.front());
  if (!result.completion.error.ok() && result.completion.tokens.empty()) {
    return result.completion.error;
  }
  return result;
}

}  // namespace

StatusOr<int> RunBenchmark(ProgramRun& run) {
  KU_ASSIGN_OR_RETURN(const Prompt pictures, PicturePrompt(run));
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadEngine(run, run.options.engine));
  Console& console = run.console;
  const int context = engine->config().max_context;
  console.Answer("BENCHMARK_CSV_START\n" + BenchmarkCsvHeader());
  int rows = 0;
  for (const int prompt_tokens : run.options.benchmark_prompts) {
    if (prompt_tokens >= context) {
      console.Note("skipped " + std::to_string(prompt_tokens) + " prompt tokens: the context is " +
                   std::to_string(context));
      continue;
    }
    if (prompt_tokens <= static_cast<int>(pictures.ids.size()) && !pictures.ids.empty()) {
      console.Note("skipped " + std::to_string(prompt_tokens) +
                   " prompt tokens: the pictures take " + std::to_string(pictures.ids.size()));
      continue;
    }
    for (int i = 0; i < run.options.repetitions; ++i) {
      KU_ASSIGN_OR_RETURN(const AnswerResult result,
                          Measure(run, *engine, pictures, prompt_tokens, i));
      KU_RETURN_IF_ERROR(console.output_status());
      if (result.completion.finish == FinishReason::kInterrupt) return kExitInterrupted;
      console.Answer(BenchmarkCsvRow(result));
      ++rows;
    }
  }
  console.Answer("BENCHMARK_CSV_END\n");
  if (rows > 0) return kExitOk;
  return Status(StatusCode::kContextExceeded,
                "no prompt length is shorter than the context of " + std::to_string(context) +
                    (pictures.ids.empty() ? "" : " and longer than the pictures"),
                "lower --benchmark-prompt-tokens or raise --max-context");
}

}  // namespace kuiper::demo
