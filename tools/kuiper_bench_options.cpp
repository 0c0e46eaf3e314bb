#include "tools/kuiper_bench_options.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace kuiper::tools {
namespace {

constexpr Scenario kScenarios[] = {{"rates", "1,2,4,8", "128,512", "16", true},
                                   {"throughput", "1,2,4,8,16,32,64", "16", "16", true},
                                   {"prefix", "1", "2000", "16", true},
                                   {"cascade", "8,32", "2000", "16", true},
                                   {"attention", "1,8,32", "16", "1024,8192", true},
                                   {"memory", "8", "16", "16", false},
                                   {"scheduler", "1,16,64,256", "16", "16", false}};

Status CheckOptions(const Args& args, const std::string& scenario) {
  using Names = std::vector<std::string>;
  const Names rates = {"rates"}, memory = {"memory"};
  const Names engine = {"rates", "throughput", "prefix", "cascade"};
  const Names model = {"rates", "throughput", "prefix", "cascade", "attention"};
  const std::pair<const char*, Names> readers[] = {
      {"dtype", model},
      {"device", model},
      {"prompt-tokens", {"rates", "prefix", "cascade"}},
      {"batch", {"rates", "throughput", "cascade", "attention", "memory", "scheduler"}},
      {"context", {"rates", "throughput", "attention"}},
      {"decode-steps", {"rates", "throughput", "cascade", "attention"}},
      {"repetitions", model},
      {"threads", model},
      {"chunk", engine},
      {"tune", engine},
      {"attention", model},
      {"no-paged-attention", {"rates", "throughput"}},
      {"no-cuda-graph", {"rates", "throughput", "cascade"}},
      {"requests", memory},
      {"max-context", memory},
      {"csv", memory},
      {"text", rates},
      {"tokenizer", rates},
      {"json", rates}};
  for (const auto& [option, names] : readers) {
    if (!args.has(option) || std::find(names.begin(), names.end(), scenario) != names.end()) {
      continue;
    }
    std::string list;
    for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
    return Status(StatusCode::kInvalidArgument,
                  "--" + std::string(option) + " goes with --scenario " + list);
  }
  return OkStatus();
}

}  // namespace

StatusOr<Scenario> ParseScenario(const Args& args) {
  const std::string name = args.text("scenario", "rates");
  std::string known;
  for (const Scenario& scenario : kScenarios) {
    if (name == scenario.name) {
      KU_RETURN_IF_ERROR(CheckOptions(args, name));
      return scenario;
    }
    known += (known.empty() ? "" : ", ") + std::string(scenario.name);
  }
  return Status(StatusCode::kInvalidArgument, "--scenario: '" + name + "' is not one of " + known);
}

StatusOr<Workload> ParseWorkload(const Args& args, const Scenario& scenario) {
  Workload w;
  KU_ASSIGN_OR_RETURN(w.prompts, ParseIntList(args, "prompt-tokens", scenario.prompts));
  KU_ASSIGN_OR_RETURN(w.batches, ParseIntList(args, "batch", scenario.batches));
  KU_ASSIGN_OR_RETURN(w.contexts, ParseIntList(args, "context", scenario.contexts));
  KU_ASSIGN_OR_RETURN(w.steps, ParseInt(args, "decode-steps", 16, 4, 4096));
  KU_ASSIGN_OR_RETURN(w.repetitions, ParseInt(args, "repetitions", 3, 1, 100));
  KU_ASSIGN_OR_RETURN(w.threads, ParseInt(args, "threads", 0, 0, 1024));
  KU_ASSIGN_OR_RETURN(w.chunk, ParseInt(args, "chunk", 512, 1, 1 << 20));
  return w;
}

StatusOr<MemoryLoad> ParseLoad(const Args& args, const Workload& w) {
  MemoryLoad load;
  KU_ASSIGN_OR_RETURN(load.requests, ParseInt(args, "requests", load.requests, 1, 100'000));
  KU_ASSIGN_OR_RETURN(load.max_context,
                      ParseInt(args, "max-context", load.max_context, 2, 1 << 20));
  load.rows = w.batches.front();
  if (w.batches.size() > 1 || int64_t{load.rows} * load.max_context > int64_t{1} << 30) {
    return Status(StatusCode::kInvalidArgument,
                  "--scenario memory takes one --batch and at most 2^30 tokens of memory");
  }
  return load;
}

StatusOr<AttentionKind> ParseAttention(const Args& args) {
  return ParseChoice<AttentionKind>(args, "attention", AttentionKind::kFlash1,
                                    {{"flash1", AttentionKind::kFlash1},
                                     {"flash2", AttentionKind::kFlash2},
                                     {"mha", AttentionKind::kMha}});
}

}  // namespace kuiper::tools
