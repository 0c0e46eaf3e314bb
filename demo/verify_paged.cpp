// --verify-paged: runs the same request with the contiguous and with the paged KV cache and
// compares the results bit by bit (kuiper/engine/run_comparison.h). The engines run one after the
// other and map the same weights.
#include <algorithm>
#include <climits>
#include <optional>
#include <utility>

#include "demo/tasks.h"
#include "kuiper/base/hash.h"
#include "kuiper/command_line/exit_code.h"
#include "kuiper/engine/run_comparison.h"
#include "kuiper/report/result_json.h"

namespace kuiper::demo {
namespace {

// Returns the context of both runs: where a sequence outgrows the pages, there is a context shift,
// so the contiguous run needs the same limit.
int64_t ContextOf(const ProgramRun& run) {
  EngineConfig config = run.options.engine;
  if (config.on_full != OnFull::kSlide) return run.context.max_context;
  config.paged = true;
  const StatusOr<MemoryPlan> plan = Engine::Plan(config, *run.model);
  if (!plan.ok()) return run.context.max_context;
  return std::min(int64_t{run.context.max_context}, int64_t{plan->num_pages} * config.page_size);
}

// Runs the request once; if `hidden_of` is set, not beyond that token.
StatusOr<Completion> Generate(ProgramRun& run, Request request, bool paged, int context,
                              std::optional<int> hidden_of) {
  EngineConfig config = run.options.engine;
  config.paged = paged;
  config.max_context = context;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, LoadEngine(run, config));
  request.hidden_of = hidden_of;
  int num_tokens = 0;
  const auto on_event = [&](const TokenEvent&) {
    const char* layout = paged ? "paged" : "contiguous";
    if (++num_tokens == 1) {
      run.console.Line(LogLevel::kDebug, std::string(layout) + ": generating");
    }
    return !hidden_of.has_value() || num_tokens <= *hidden_of;
  };
  KU_ASSIGN_OR_RETURN(std::vector<Completion> one,
                      RunSamples(*engine, std::move(request), on_event));
  run.console.Line(LogLevel::kDebug, "ran: " + RanJson(engine->run_facts()));
  Completion& completion = one.front();
  if (completion.finish == FinishReason::kError) return completion.error;
  return std::move(completion);
}

}  // namespace

StatusOr<int> RunVerifyPaged(ProgramRun& run, const PromptInput& input) {
  KU_ASSIGN_OR_RETURN(Conversation conversation, StartConversation(run, input));
  KU_ASSIGN_OR_RETURN(Prompt prompt,
                      Prompter(run.options, run.console, *run.tokenizer, run.context)
                          .Build(ChatTemplateOf(run, input), run.options.request, &conversation));
  Request request = MakeRequest(std::move(prompt), run.options.request);
  request.keep_logits = true;
  if (request.sampling.seed == kRandomSeed) request.sampling.seed = DrawSeed();
  const int vocab = run.model->config.decoder.vocab, hidden = run.model->config.decoder.hidden;
  if (run.options.format == OutputFormat::kJson) {
    run.console.Note("-o json has no effect: --verify-paged prints one line");
  }
  const auto context = static_cast<int>(ContextOf(run));
  bool interrupted = false;
  const auto way = [&](const char* name, bool paged) {
    return ComparedRun{name, [&, paged](std::optional<int> hidden_of) -> StatusOr<Completion> {
                         auto one = Generate(run, request, paged, context, hidden_of);
                         interrupted =
                             one.ok() && one->finish == FinishReason::kInterrupt &&
                             static_cast<int>(one->tokens.size()) <= hidden_of.value_or(INT_MAX);
                         if (interrupted) return Status(StatusCode::kInternal, "interrupted");
                         return one;
                       }};
  };
  const StatusOr<RunComparison> comparison =
      CompareRuns(way("contiguous", false), way("paged", true), vocab, hidden);
  if (interrupted) return kExitInterrupted;
  KU_RETURN_IF_ERROR(comparison.status());
  if (comparison->difference.has_value()) {
    run.console.Error(Status(StatusCode::kInternal,
                             "paged and contiguous differ at " + comparison->difference->what));
    return kExitVerify;
  }
  const Completion& c = comparison->first;
  run.console.Answer("identical: " + std::to_string(c.tokens.size()) + " tokens, logits " +
                     std::to_string(c.tokens.size()) + " x " + std::to_string(vocab) +
                     ", page_size=" + std::to_string(run.options.engine.page_size) +
                     ", ids=" + TokenHash(c.tokens) + "\n");
  return kExitOk;
}

}  // namespace kuiper::demo
