#include "demo/eval_options.h"

#include <utility>

#include "demo/flags.h"
#include "kuiper/base/errors.h"
#include "kuiper/command_line/exit_code.h"

namespace kuiper::demo {
namespace {

// Flags that may differ between configurations: the model, and how it is computed.
FlagTable ConfigurationFlags(Options& options) {
  FlagTable table = FlagsOf(FlagPrograms::kEval, options);
  std::erase_if(table.flags, [](const Flag& flag) {
    return flag.group != kConfigurationGroup && flag.name != "model" && flag.name != "tokenizer";
  });
  return table;
}

// Returns `base`, modified by the flags in `text`.
StatusOr<Options> OtherConfiguration(const Options& base, const std::string& text) {
  Options other = base;
  KU_ASSIGN_OR_RETURN(const std::vector<std::string> words, SplitWords(text));
  KU_ASSIGN_OR_RETURN(const ParsedArgs args, ParseArgs(words, ConfigurationFlags(other)));
  if (words.empty() || args.help || args.version) return InvalidArgument("it contains no flag");
  if (args.positionals.size() > (args.given("model") ? 0 : 1)) {
    return InvalidArgument("unexpected argument '" + args.positionals.back() + "'");
  }
  if (!args.positionals.empty()) other.engine.model_path = args.positionals[0];
  if (other.engine.model_path != base.engine.model_path && !args.given("tokenizer")) {
    other.engine.tokenizer_path.clear();  // the other model has its own tokenizer
  }
  for (const auto& [name, value] : args.values) other.args.values[name] = value;
  return other;
}

}  // namespace

Status FinishEval(Options* options) {
  const EvalOptions& eval = options->eval;
  if (eval.text_file.empty())
    return InvalidArgument("no --text given", "usage: MODEL --text FILE [options]");
  if (eval.stride.value_or(1) > eval.window.value_or(INT32_MAX)) {
    return InvalidArgument(
        "--stride is longer than --window: tokens between windows would be left out");
  }
  if (!options->args.given("warm-up")) options->engine.warm_up = false;
  options->engine.prompt_logits = true;
  options->engine.max_num_seqs = 1;
  for (const std::string& text : eval.against) {
    StatusOr<Options> other = OtherConfiguration(*options, text);
    if (!other.ok()) {
      return InvalidArgument("--against '" + text + "': " + other.status().message(FlagName),
                             other.status().hint(FlagName));
    }
    options->others.push_back(std::move(*other));
  }
  return OkStatus();
}

}  // namespace kuiper::demo
