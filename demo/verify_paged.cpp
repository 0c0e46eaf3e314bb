// --verify-paged: the same request with the contiguous and with the paged KV cache, one engine
// after the other (they map the same weights), compared to the bit.
#include <bit>
#include <utility>

#include "demo/exit_code.h"
#include "demo/report.h"
#include "demo/result_json.h"
#include "demo/tasks.h"
#include "kuiper/base/hash.h"

namespace kuiper::demo {
namespace {

struct Outcome {
  Completion completion;
  int vocab = 0;
};

StatusOr<Outcome> Generate(ProgramRun& run, const PromptInput& input, bool paged) {
  Options options = run.options;
  options.engine.paged = paged;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadEngine(run, options.engine));
  options.request = run.options.request;  // LoadEngine reads generation_config.json
  Answerer answerer(options, *engine, run.console, false);
  KU_ASSIGN_OR_RETURN(Conversation conversation, StartConversation(options, input));
  const TemplateOptions chat = ChatTemplateOf(run, input, engine->chat_family());
  Prompt prompt;
  if (options.raw) {
    prompt = RawPrompt(*engine->tokenizer(), chat, *input.text);
  } else {
    KU_ASSIGN_OR_RETURN(prompt, answerer.BuildPrompt(chat, options.request, &conversation));
  }
  Request request = answerer.MakeRequest(prompt, options.request);
  request.keep_logits = true;
  Outcome outcome;
  outcome.vocab = engine->model_config().decoder.vocab;
  bool generating = false;
  const auto on_event = [&](const TokenEvent&) {
    const char* layout = paged ? "paged" : "contiguous";
    if (!generating) run.console.Line(LogLevel::kDebug, std::string(layout) + ": generating");
    return generating = true;
  };
  KU_ASSIGN_OR_RETURN(std::vector<Completion> one, RunSamples(*engine, request, on_event));
  outcome.completion = std::move(one.front());
  if (outcome.completion.finish == FinishReason::kError) return outcome.completion.error;
  return outcome;
}

// "" when the two are equal to the bit.
std::string FirstDifference(const Outcome& contiguous, const Outcome& paged) {
  const Completion& a = contiguous.completion;
  const Completion& b = paged.completion;
  const size_t tokens = std::min(a.tokens.size(), b.tokens.size());
  const size_t vocab = static_cast<size_t>(contiguous.vocab);
  for (size_t i = 0; i < tokens; ++i) {
    const float* x = a.logits.data() + i * vocab;
    const float* y = b.logits.data() + i * vocab;
    for (size_t v = 0; v < vocab; ++v) {
      if (std::bit_cast<uint32_t>(x[v]) == std::bit_cast<uint32_t>(y[v])) continue;
      return Format("token %zu: logit of id %zu is %.9g contiguous, %.9g paged", i, v, x[v], y[v]);
    }
    if (a.tokens[i] != b.tokens[i]) {
      return "token " + std::to_string(i) + ": id " + std::to_string(a.tokens[i]) +
             " contiguous, " + std::to_string(b.tokens[i]) + " paged";
    }
  }
  if (a.tokens.size() == b.tokens.size()) return "";
  return std::to_string(a.tokens.size()) + " tokens contiguous, " +
         std::to_string(b.tokens.size()) + " paged";
}

}  // namespace

StatusOr<int> RunVerifyPaged(ProgramRun& run, const PromptInput& input) {
  KU_ASSIGN_OR_RETURN(const Outcome contiguous, Generate(run, input, false));
  if (contiguous.completion.finish == FinishReason::kInterrupt) return kExitInterrupted;
  KU_ASSIGN_OR_RETURN(const Outcome paged, Generate(run, input, true));
  if (paged.completion.finish == FinishReason::kInterrupt) return kExitInterrupted;
  const std::string difference = FirstDifference(contiguous, paged);
  if (!difference.empty()) {
    run.console.Error(
        Status(StatusCode::kInternal, "paged and contiguous differ at " + difference));
    return kExitVerify;
  }
  const Completion& c = contiguous.completion;
  run.console.Answer("identical: " + std::to_string(c.tokens.size()) + " tokens, logits " +
                     std::to_string(c.tokens.size()) + " x " + std::to_string(contiguous.vocab) +
                     ", page_size=" + std::to_string(run.options.engine.page_size) +
                     ", ids=" + TokenHash(c.tokens) + "\n");
  return kExitOk;
}

}  // namespace kuiper::demo
