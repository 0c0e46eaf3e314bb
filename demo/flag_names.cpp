// Other spellings of flags, the short names that only one program has, and the list of common
// flags.
#include <algorithm>
#include <utility>

#include "demo/flags.h"
#include "kuiper/chat/parameters.h"

namespace kuiper::demo {
namespace {

// The flags that most users need.
constexpr const char* kCommon[] = {"input",
                                   "output",
                                   "image",
                                   "prompt",
                                   "file",
                                   "system-prompt",
                                   "think",
                                   "max-tokens",
                                   "temp",
                                   "top-p",
                                   "seed",
                                   "max-context",
                                   "paged-attention",
                                   "prefix-cache",
                                   "device",
                                   "threads",
                                   "interactive",
                                   "stream",
                                   "session",
                                   "output-format",
                                   "quiet",
                                   "verbose",
                                   "dry-run",
                                   "verify-paged",
                                   "strict",
                                   "max-num-seqs",
                                   "text",
                                   "against",
                                   "window",
                                   "stride",
                                   "limit",
                                   "json",
                                   "format",
                                   "bits",
                                   "group-size",
                                   "method",
                                   "asymmetric",
                                   "host",
                                   "port",
                                   "api-key-file",
                                   "served-model-name"};

// The short names of qwen3_vl_infer that differ from those of the other programs.
void UseVisionNames(FlagTable* table) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"image", "i"},  {"interactive", ""}, {"max-tokens", "m"},
      {"model", ""},   {"max-pixels", "x"}, {"attention", "a"},
      {"stream", "s"}, {"cuda-graph", "g"}, {"paged-attention", "P"}};
  for (const auto& [name, short_name] : kNames) {
    for (Flag& flag : table->flags) {
      if (flag.name == name) flag.short_name = short_name;
    }
  }
  table->aliases.push_back({"-n", "max-tokens"});
}

// Request parameters become defaults of the server, used if a body omits them.
void AddDefaultNames(FlagTable* table) {
  for (const Parameter& parameter : Parameters()) {
    if (!parameter.of_sampling) continue;
    table->aliases.push_back({"default-" + FlagOf(parameter), FlagOf(parameter)});
  }
}

}  // namespace

void AddNames(FlagPrograms program, FlagTable* table) {
  for (Flag& flag : table->flags) {
    flag.is_common =
        std::find(std::begin(kCommon), std::end(kCommon), flag.name) != std::end(kCommon);
  }
  table->aliases = {
      {"temperature", "temp"},
      {"enable-thinking", "think", "", true},
      {"hide-thinking", "show-thinking", "false"},
      {"page-size", "block-size"},
      {"ctx-size", "max-context"},
      {"max-model-len", "max-context"},
      {"enforce-eager", "cuda-graph", "false"},
      // Whether these are on by default depends on the device.
      {"no-cascade-attention", "cascade-attention", "false"},
      {"no-fused-ffn", "fused-ffn", "false"},
  };
  if (program == FlagPrograms::kVision) UseVisionNames(table);
  if (program == FlagPrograms::kServe) AddDefaultNames(table);
}

}  // namespace kuiper::demo
