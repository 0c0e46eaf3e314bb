// kuiper eval: how well configurations predict a text. All configurations are in memory at once and
// take turns, window by window. After an interruption, their results can thus still be compared.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "demo/tasks.h"
#include "kuiper/base/clock.h"
#include "kuiper/chat/conversation.h"
#include "kuiper/command_line/exit_code.h"
#include "kuiper/command_line/signals.h"
#include "kuiper/engine/evaluation.h"
#include "kuiper/io/text_input.h"
#include "kuiper/report/eval_report.h"
#include "kuiper/report/number_text.h"

namespace kuiper::demo {
namespace {

constexpr int kDefaultWindow = 512;

std::string ProgressText(const EvaluatedEngine& reference, int64_t done, int64_t total,
                         double seconds) {
  const TextScore& score = reference.score;
  const double left =
      seconds * static_cast<double>(total - done) / static_cast<double>(std::max<int64_t>(done, 1));
  return ProgressBar(done, total) + Format(" %ld tokens", score.count) +
         (score.count > 0 ? Format(", perplexity %.4f", score.perplexity()) : "") +
         (done > 0 ? TimeLeftText(left) : "");
}

// Returns true if all windows were computed; a signal stops the evaluation.
StatusOr<bool> RunShown(Evaluation& evaluation, Console& console) {
  InterruptScope interrupt;
  const Clock::time_point begin = Clock::now();
  StatusOr<bool> whole = evaluation.Run([&](int64_t done, int64_t total) {
    console.Progress(
        [&] { return ProgressText(evaluation.engines()[0], done, total, SecondsSince(begin)); });
    return !interrupt.interrupted();
  });
  console.EndProgress();
  return whole;
}

// Returns the tokens of the text, read as a prompt with --raw: it begins with the tokenizer's start
// token if any, and control tokens are recognised in the text. Returns kInput for fewer than two.
StatusOr<std::vector<int32_t>> ReadTokens(const Options& options, const std::string& text,
                                          const Tokenizer& tokenizer) {
  std::vector<int32_t> ids = EncodeRaw(tokenizer, text);
  if (options.eval.limit.has_value() && static_cast<int64_t>(ids.size()) > *options.eval.limit) {
    ids.resize(static_cast<size_t>(*options.eval.limit));
  }
  if (ids.size() >= 2) return ids;
  return Status(StatusCode::kInput, "text file " + options.eval.text_file +
                                        " has too few tokens (" + std::to_string(ids.size()) +
                                        "): at least 2 are needed");
}

// Returns --window, or the largest window that fits all runs. The context has this length unless
// --max-context says otherwise.
StatusOr<int> ChooseWindow(std::vector<ProgramRun>& runs) {
  const EvalOptions& eval = runs[0].options.eval;
  int window = eval.window.value_or(kDefaultWindow);
  for (const ProgramRun& run : runs) {
    const int limit =
        run.options.args.given("max-context") ? run.context.max_context : run.context.of_model;
    if (eval.window.has_value() && window > limit) {
      return Status(StatusCode::kInvalidArgument,
                    "--window " + std::to_string(window) + " is longer than the context of " +
                        ModelName(run.options.engine.model_path) + ", " + std::to_string(limit));
    }
    window = std::min(window, limit);
  }
  if (window < 2) {
    return Status(StatusCode::kInvalidArgument, "a context of 1 token predicts nothing");
  }
  for (ProgramRun& run : runs) {
    EngineConfig& engine = run.options.engine;
    if (!run.options.args.given("max-context")) engine.max_context = window;
    engine.max_num_batched_tokens = std::min(engine.max_num_batched_tokens, window);
  }
  return window;
}

// Per-token results are comparable only if the tokens are the same.
Status CheckComparable(const ProgramRun& reference, const ProgramRun& other,
                       const std::vector<int32_t>& ids, const std::vector<int32_t>& other_ids) {
  const auto name = [](const ProgramRun& run) { return ModelName(run.options.engine.model_path); };
  const int vocab = reference.model->config.decoder.vocab;
  const int other_vocab = other.model->config.decoder.vocab;
  if (ids != other_ids) {
    return Status(StatusCode::kTokenizer,
                  name(reference) + " and " + name(other) +
                      " read the text as different tokens: per token they cannot be compared");
  }
  if (vocab == other_vocab) return OkStatus();
  return Status(StatusCode::kModel, name(reference) + " has " + std::to_string(vocab) +
                                        " logits and " + name(other) + " " +
                                        std::to_string(other_vocab) + ": they cannot be compared");
}

// Returns the runs to compare, `run` first, with their models opened.
StatusOr<std::vector<ProgramRun>> OpenAll(ProgramRun& run, const std::string& text,
                                          const std::vector<int32_t>& ids) {
  std::vector<ProgramRun> runs;
  runs.push_back(std::move(run));
  for (Options& options : runs[0].options.others) {
    ProgramRun other{runs[0].program, options, runs[0].console};
    KU_RETURN_IF_ERROR(OpenConfiguration(other));
    KU_ASSIGN_OR_RETURN(const std::vector<int32_t> other_ids,
                        ReadTokens(options, text, *other.tokenizer));
    KU_RETURN_IF_ERROR(CheckComparable(runs[0], other, ids, other_ids));
    runs.push_back(std::move(other));
  }
  return runs;
}

}  // namespace

StatusOr<int> RunEval(ProgramRun& run) {
  const EvalOptions& eval = run.options.eval;
  KU_ASSIGN_OR_RETURN(const std::string text, ReadTextInput(eval.text_file, "text file"));
  KU_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                      ReadTokens(run.options, text, *run.tokenizer));
  KU_ASSIGN_OR_RETURN(std::vector<ProgramRun> runs, OpenAll(run, text, ids));
  EvalResult result;
  result.text_file = eval.text_file;
  result.num_tokens = static_cast<int64_t>(ids.size());
  KU_ASSIGN_OR_RETURN(result.window, ChooseWindow(runs));
  result.stride = eval.stride.value_or(result.window / 2);
  if (result.stride > result.window) {
    return Status(StatusCode::kInvalidArgument,
                  "--stride is longer than the window of " + std::to_string(result.window));
  }
  Evaluation evaluation(ids, PlanWindows(result.num_tokens, result.window, result.stride));
  if (runs.size() > 1) evaluation.ReserveComparison(runs[0].model->config.decoder.vocab);
  std::vector<std::unique_ptr<Engine>> engines;
  for (ProgramRun& one : runs) {
    KU_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, LoadEngine(one, one.options.engine));
    evaluation.Add(*engine);
    engines.push_back(std::move(engine));
  }
  Console& console = runs[0].console;
  KU_ASSIGN_OR_RETURN(const bool whole, RunShown(evaluation, console));
  result.interrupted = !whole;
  for (size_t i = 0; i < runs.size(); ++i) {
    EvalRow row;
    row.model = ModelName(runs[i].options.engine.model_path);
    if (i > 0) row.flags = eval.against[i - 1];
    row.sums = evaluation.engines()[i];
    row.ran = engines[i]->run_facts();
    console.Info(row.Summary());
    result.rows.push_back(std::move(row));
  }
  console.Answer(runs[0].options.json() ? EvalJson(result, FlagName) + "\n" : EvalTable(result));
  return whole ? kExitOk : kExitInterrupted;
}

}  // namespace kuiper::demo
