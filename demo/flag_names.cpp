// Other spellings of flags, and the short names that a program has of its own.
#include <utility>

#include "demo/flags.h"

namespace kuiper::demo {
namespace {

// The short names of qwen3_vl_infer, where they are not those of the other programs.
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

}  // namespace

void AddNames(FlagPrograms program, FlagTable* table) {
  table->aliases = {
      {"temperature", "temp"},
      {"enable-thinking", "think", "", true},
      {"hide-thinking", "show-thinking", "false"},
      {"page-size", "block-size"},
      {"ctx-size", "max-context"},
      {"max-model-len", "max-context"},
      {"enforce-eager", "cuda-graph", "false"},
      // On or off by default, as the device has it.
      {"no-cascade-attention", "cascade-attention", "false"},
      {"no-fused-ffn", "fused-ffn", "false"},
  };
  if (program == FlagPrograms::kVision) UseVisionNames(table);
}

}  // namespace kuiper::demo
