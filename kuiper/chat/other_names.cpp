#include "kuiper/chat/other_names.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "kuiper/base/status.h"

namespace kuiper {
namespace {

using Names = std::pair<std::string_view, std::string_view>;

constexpr Names kSame[] = {
    {"repeat_penalty", "repetition_penalty"},
    {"num_predict", "max_tokens"},
    {"n_predict", "max_tokens"},
    {"predict", "max_tokens"},
    {"max_new_tokens", "max_tokens"},
    {"max_completion_tokens", "max_tokens"},
    {"max_output_tokens", "max_tokens"},
    {"min_new_tokens", "min_tokens"},
    {"stop_sequences", "stop"},
    {"reverse_prompt", "stop"},
    {"freq_penalty", "frequency_penalty"},
    {"pres_penalty", "presence_penalty"},
    {"t", "temp"},
};

constexpr std::string_view kContext = "max_context", kDevice = "device", kThreads = "threads",
                           kBatch = "max_num_batched_tokens";
constexpr Names kAtStart[] = {
    {"num_ctx", kContext},     {"n_ctx", kContext},
    {"ctx_size", kContext},    {"context", kContext},
    {"max_context", kContext}, {"context_length", kContext},
    {"num_gpu", kDevice},      {"n_gpu_layers", kDevice},
    {"gpu_layers", kDevice},   {"ngl", kDevice},
    {"main_gpu", kDevice},     {"device", kDevice},
    {"num_thread", kThreads},  {"threads", kThreads},
    {"num_threads", kThreads}, {"num_batch", kBatch},
    {"batch_size", kBatch},    {"ubatch_size", kBatch},
    {"num_keep", "on_full"},   {"n_keep", "on_full"},
    {"keep", "on_full"},       {"min_tokens", "min_tokens"},
};

constexpr std::string_view kSamplers[] = {
    "mirostat", "mirostat_tau", "mirostat_eta", "tfs_z",         "typical_p",       "typical",
    "top_a",    "top_nsigma",   "xtc",          "dry",           "xtc_probability", "xtc_threshold",
    "dynatemp", "smoothing",    "samplers",     "dry_multiplier"};

const Names* Find(const Names* begin, const Names* end, std::string_view name) {
  const Names* found = std::find_if(begin, end, [&](const Names& n) { return n.first == name; });
  return found == end ? nullptr : found;
}

}  // namespace

std::string_view KuiperName(std::string_view name) {
  const Names* same = Find(std::begin(kSame), std::end(kSame), name);
  return same == nullptr ? name : same->second;
}

std::string WhereToSet(std::string_view name) {
  if (const Names* start = Find(std::begin(kAtStart), std::end(kAtStart), name)) {
    return "it is chosen at the start of the chat, by " + Param(start->second);
  }
  if (std::find(std::begin(kSamplers), std::end(kSamplers), name) != std::end(kSamplers)) {
    return "this sampler is not supported; /set alone lists the available parameters";
  }
  if (name == "repeat_last_n") return "penalties count all tokens of the context";
  return "";
}

}  // namespace kuiper
