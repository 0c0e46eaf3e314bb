// Flags of llama.cpp and of Kuiper's predecessor that users may type from habit. They are other
// names of our flags, have no effect, or give an error that says what to type instead.
#include <iterator>

#include "demo/flags.h"

namespace kuiper::demo {
namespace {

constexpr const char* kOneDevice = "is not available: a model runs on one --device";
constexpr const char* kSamplers = "is not available; --help all lists the samplers that are";
constexpr const char* kOwnTemplate =
    "is not available: the chat template is that of the model's or --tokenizer's folder";
constexpr const char* kNoGrammar = "is not available: there is no constrained decoding";
constexpr const char* kOneWay = "has no effect: there is one implementation";
constexpr const char* kNoDraft = "is not available in this version";

struct OtherFlag {
  const char* names;
  const char* why;
};

constexpr OtherFlag kRefused[] = {
    {"b,batch-size", "is --max-num-batched-tokens here"},
    {"ub,ubatch-size", "is --max-num-batched-tokens here"},
    {"tb,threads-batch", "is --threads here"},
    {"fa,flash-attn", "is --attention here"},
    {"ctk,cache-type-k", "is --kv-cache-dtype here, of keys and values"},
    {"ctv,cache-type-v", "is --kv-cache-dtype here, of keys and values"},
    {"mg,main-gpu", "is --device cuda:N here"},
    {"sm,split-mode", kOneDevice},
    {"ts,tensor-split", kOneDevice},
    {"keep", "is not available: --on-full slide keeps the first four tokens"},
    {"repeat-last-n", "is not available: penalties count all tokens of the context"},
    {"mirostat", kSamplers},
    {"typical", kSamplers},
    {"top-nsigma", kSamplers},
    {"xtc-probability", kSamplers},
    {"dry-multiplier", kSamplers},
    {"dynatemp-range", kSamplers},
    {"samplers", kSamplers},
    {"chat-template", kOwnTemplate},
    {"chat-template-file", kOwnTemplate},
    {"grammar", kNoGrammar},
    {"grammar-file", kNoGrammar},
    {"md,model-draft", kNoDraft},
    {"hf,hf-repo", "is not available: tools/get_model.sh downloads models"},
    {"lora", "is not available: merge the adapter into the model"},
    {"prompt-cache", "is --session here, which keeps the conversation"},
    {"verbose-prompt", "is --print-prompt here"},
    {"mli,multiline-input", "is /multiline in a chat"},
};

// Switches. Programs that give no answers know only those of the predecessor.
constexpr OtherFlag kWithoutEffect[] = {
    {"mlock", "has no effect: --weights copied keeps the weights in memory"},
    {"jinja", "has no effect: the model's chat template is used anyway"},
    {"no-display-prompt", "has no effect: the prompt is not printed"},
    {"cb,cont-batching", "has no effect: requests are batched as they come"},
};
constexpr OtherFlag kOfPredecessor[] = {
    {"fused-ffn", kOneWay},
    {"fused-rope-kv", kOneWay},
    {"fused-gqa", kOneWay},
};

Flag Unread(const OtherFlag& other, FlagUse use, Variable variable) {
  Flag flag = MakeFlag(other.names, std::move(variable), "");
  flag.use = use;
  flag.why = other.why;
  return flag;
}

}  // namespace

void AddOtherFlags(FlagPrograms program, Options& options, FlagTable* table) {
  if (!Contains(FlagPrograms::kRuns, program)) return;
  std::vector<Flag> flags;
  for (const OtherFlag& other : kOfPredecessor) {
    table->flags.push_back(Unread(other, FlagUse::kNoEffect, &options.unused.on));
  }
  if (!Contains(FlagPrograms::kAnswers, program)) return;
  for (const OtherFlag& other : kRefused) {
    flags.push_back(Unread(other, FlagUse::kUnavailable, &options.unused.text));
    flags.back().bare_value = "any";
  }
  for (const OtherFlag& other : kWithoutEffect) {
    flags.push_back(Unread(other, FlagUse::kNoEffect, &options.unused.on));
  }
  flags.push_back(Unread({"ngl,gpu-layers", "has no effect: --device has all layers or none"},
                         FlagUse::kNoEffect, &options.unused.text));
  table->flags.insert(table->flags.end(), flags.begin(), flags.end());
  const FlagAlias aliases[] = {
      {"n-gpu-layers", "gpu-layers"},
      {"repeat-penalty", "repetition-penalty"},
      {"predict", "max-tokens"},
      {"n-predict", "max-tokens"},
      {"max-new-tokens", "max-tokens"},
      {"reverse-prompt", "stop"},
      {"-r", "stop"},
      {"-t", "threads"},
      {"-s", "seed"},
      {"conversation", "interactive"},
      {"-cnv", "interactive"},
      {"single-turn", "interactive", "false"},
      {"parallel", "max-num-seqs"},
      {"-np", "max-num-seqs"},
      {"context-shift", "on-full", "slide"},
      {"no-context-shift", "on-full", "stop"},
      {"mmap", "weights", "mapped"},
      {"no-mmap", "weights", "copied"},
      {"warmup", "warm-up"},
      {"no-warmup", "warm-up", "false"},
      {"log-disable", "quiet"},
      {"alias", "served-model-name"},
  };
  for (const FlagAlias& alias : aliases) table->aliases.emplace_back(alias).is_listed = false;
}

}  // namespace kuiper::demo
