#include "demo/flag_table.h"

#include <iterator>

namespace kuiper::demo {
namespace {

using enum FlagKind;
using enum FlagUse;

constexpr double kMaxInt = 2147483647;
constexpr const char* kTextOnly = "is not available: this program takes text only";
constexpr const char* kNotYet = "is not available in this version";

constexpr FlagSpec kInput[] = {
    {.name = "model", .kind = kText, .value = "PATH", .short_name = "m"},
    {.name = "tokenizer", .kind = kText, .value = "PATH"},
    {.name = "prompt", .kind = kText, .value = "TEXT", .short_name = "p"},
    {.name = "file", .kind = kText, .value = "PATH", .short_name = "f"},
    {.name = "messages", .kind = kText, .value = "PATH"},
    {.name = "system-prompt", .kind = kText, .value = "TEXT", .short_name = "sys"},
    {.name = "raw", .kind = kBool},
    {.name = "think", .kind = kChoice, .value = "on|off|auto", .choices = "on|off|auto"},
    {.name = "show-thinking", .kind = kBool},
    {.name = "reasoning-budget", .kind = kInt, .value = "N", .min = -1, .max = kMaxInt},
    {.name = "image", .kind = kTextList, .use = kUnavailable, .why = kTextOnly},
    {.name = "max-pixels", .kind = kText, .use = kUnavailable, .why = kTextOnly},
    {.name = "min-pixels", .kind = kText, .use = kUnavailable, .why = kTextOnly},
    {.name = "image-max-tokens", .kind = kText, .use = kUnavailable, .why = kTextOnly},
};

constexpr FlagSpec kGeneration[] = {
    {.name = "max-tokens", .kind = kInt, .value = "N", .short_name = "n", .min = 1, .max = kMaxInt},
    {.name = "temp", .kind = kFloat, .value = "F", .min = 0, .max = 100},
    {.name = "top-k", .kind = kInt, .value = "N", .min = 0, .max = kMaxInt},
    {.name = "top-p", .kind = kFloat, .value = "F", .min = 0, .max = 1, .open_min = true},
    {.name = "min-p", .kind = kFloat, .value = "F", .min = 0, .max = 1},
    {.name = "repetition-penalty", .kind = kFloat, .value = "F", .min = 0.01, .max = 100},
    {.name = "presence-penalty", .kind = kFloat, .value = "F", .min = -2, .max = 2},
    {.name = "frequency-penalty", .kind = kFloat, .value = "F", .min = -2, .max = 2},
    {.name = "seed", .kind = kUint64, .value = "N"},
    {.name = "use-generation-config", .kind = kBool},
    {.name = "stop", .kind = kTextList, .value = "STR"},
    {.name = "ignore-eos", .kind = kBool},
    {.name = "logprobs", .kind = kInt, .value = "N", .min = 0, .max = 20},
    {.name = "overflow",
     .kind = kChoice,
     .value = "error|drop-oldest",
     .choices = "error|drop-oldest"},
    {.name = "json-schema", .kind = kText, .use = kUnavailable, .why = kNotYet},
    {.name = "speculative",
     .kind = kChoice,
     .choices = "none|ngram",
     .use = kUnavailable,
     .why = kNotYet,
     .harmless = "none"},
    {.name = "num-speculative-tokens",
     .kind = kInt,
     .min = 0,
     .max = 64,
     .use = kUnavailable,
     .why = kNotYet,
     .harmless = "0"},
    {.name = "num-samples",
     .kind = kInt,
     .min = 1,
     .max = 1024,
     .use = kUnavailable,
     .why = kNotYet,
     .harmless = "1"},
    {.name = "beam-width",
     .kind = kInt,
     .min = 1,
     .max = 1024,
     .use = kUnavailable,
     .why = kNotYet,
     .harmless = "1"},
};

constexpr FlagSpec kExecution[] = {
    {.name = "paged-attention", .kind = kBool},
    {.name = "block-size", .kind = kPowerOfTwo, .value = "N", .min = 1, .max = 256},
    {.name = "max-context",
     .kind = kInt,
     .value = "N",
     .short_name = "c",
     .min = 1,
     .max = kMaxInt},
    {.name = "prefix-cache", .kind = kBool},
    {.name = "prefix-cache-size", .kind = kInt, .value = "N", .min = 0, .max = kMaxInt},
    {.name = "kv-cache-dtype", .kind = kChoice, .value = "auto|fp16", .choices = "auto|fp16|int8"},
    {.name = "gpu-memory-utilization",
     .kind = kFloat,
     .value = "F",
     .min = 0,
     .max = 1,
     .open_min = true},
    {.name = "kv-cache-memory", .kind = kSize, .value = "SIZE", .min = 1, .max = 1e15},
    {.name = "num-blocks", .kind = kInt, .value = "N", .min = 1, .max = kMaxInt},
    {.name = "max-num-batched-tokens", .kind = kInt, .value = "N", .min = 1, .max = 1 << 20},
    {.name = "cuda-graph", .kind = kBool},
    {.name = "attention",
     .kind = kChoice,
     .value = "mha|flash1|flash2",
     .choices = "mha|flash1|flash2"},
    {.name = "deterministic",
     .kind = kChoice,
     .value = "on|strict|off",
     .choices = "on|strict|off",
     .bare_value = "on",
     .negated_value = "off"},
    {.name = "device", .kind = kDevice, .value = "cpu|simt|cuda:N"},
    {.name = "dtype",
     .kind = kChoice,
     .value = "auto|fp16|bf16|fp32",
     .choices = "auto|fp16|bf16|fp32"},
    {.name = "threads", .kind = kInt, .value = "N", .min = 1, .max = 1024},
    {.name = "fused-ffn",
     .kind = kBool,
     .use = kNoEffect,
     .why = "has no effect: the feed-forward layer has one implementation"},
    {.name = "fused-rope-kv",
     .kind = kBool,
     .use = kNoEffect,
     .why = "has no effect: there is one implementation"},
    {.name = "fused-gqa",
     .kind = kBool,
     .use = kNoEffect,
     .why = "has no effect: there is one implementation"},
};

constexpr FlagSpec kOutput[] = {
    {.name = "interactive", .kind = kBool, .short_name = "i"},
    {.name = "stream", .kind = kBool},
    {.name = "max-history", .kind = kInt, .value = "N", .min = 0, .max = kMaxInt},
    {.name = "history-thinking", .kind = kChoice, .value = "strip|keep", .choices = "strip|keep"},
    {.name = "session", .kind = kText, .value = "FILE"},
    {.name = "output-format",
     .kind = kChoice,
     .value = "text|raw|json|jsonl",
     .short_name = "o",
     .choices = "text|raw|json|jsonl"},
    {.name = "quiet", .kind = kBool, .short_name = "q"},
    {.name = "verbose", .kind = kBool, .short_name = "v"},
    {.name = "log-level",
     .kind = kChoice,
     .value = "debug|info|warning|error",
     .choices = "debug|info|warning|error"},
    {.name = "log-file", .kind = kText, .value = "PATH"},
    {.name = "stats", .kind = kBool},
    {.name = "stats-json", .kind = kText, .value = "PATH"},
    {.name = "color",
     .kind = kChoice,
     .value = "auto|never|always",
     .choices = "auto|never|always"},
};

constexpr FlagSpec kTools[] = {
    {.name = "tokenize", .kind = kBool},
    {.name = "dry-run", .kind = kBool},
    {.name = "verify-paged", .kind = kBool},
    {.name = "dump-tokens", .kind = kText, .value = "PATH"},
    {.name = "dump-logits", .kind = kText, .value = "PATH"},
    {.name = "benchmark", .kind = kBool},
    {.name = "benchmark-decode-tokens", .kind = kInt, .value = "N", .min = 1, .max = kMaxInt},
    {.name = "benchmark-prompt-tokens",
     .kind = kIntList,
     .value = "LIST",
     .min = 1,
     .max = kMaxInt},
    {.name = "repetitions", .kind = kInt, .value = "N", .min = 1, .max = 10000},
};

constexpr FlagGroup kGroups[] = {
    {"Model and input", kInput},
    {"Generation", kGeneration},
    {"KV cache and execution", kExecution},
    {"Session and output", kOutput},
    {"Tools", kTools},
};

constexpr FlagAlias kAliases[] = {
    {.alias = "temperature", .name = "temp"},
    {.alias = "enable-thinking", .name = "think", .takes_bool = true},
    {.alias = "hide-thinking", .name = "show-thinking", .fixed = "false"},
    {.alias = "page-size", .name = "block-size"},
    {.alias = "ctx-size", .name = "max-context"},
    {.alias = "max-model-len", .name = "max-context"},
    {.alias = "enforce-eager", .name = "cuda-graph", .fixed = "false"},
};

}  // namespace

std::span<const FlagGroup> FlagGroups() {
  return kGroups;
}
std::span<const FlagAlias> FlagAliases() {
  return kAliases;
}

const FlagSpec* FindFlag(std::string_view name) {
  for (const FlagGroup& group : kGroups) {
    for (const FlagSpec& flag : group.flags) {
      if (name == flag.name) return &flag;
    }
  }
  return nullptr;
}

}  // namespace kuiper::demo
