// --dry-run: what the model would take, and what context the memory could hold, as a table or, with
// -o json, as an object.
#include <nlohmann/json.hpp>

#include "demo/result_json.h"
#include "demo/tasks.h"
#include "kuiper/base/log.h"
#include "kuiper/command_line/exit_code.h"

namespace kuiper::demo {
namespace {

using Json = nlohmann::ordered_json;

Json RowJson(const MemoryTable::Row& row) {
  return {{"dtype", row.format.name()},
          {"chosen", row.is_chosen},
          {"bytes_per_1k_tokens", row.kv_bytes_per_1k},
          {"kv_bytes", row.plan.kv_bytes},
          {"total_bytes", row.plan.total_bytes()},
          {"free_bytes", row.free_bytes()},
          {"largest_context", row.largest_context}};
}

std::string TableJson(const MemoryTable& table, const std::string& model,
                      const std::vector<PictureFacts>& pictures) {
  const MemoryPlan& plan = table.chosen().plan;
  Json json = {{"version", 1},
               {"model", model},
               {"fits", table.fits.ok()},
               {"context", table.max_context},
               {"context_limit", table.model_limit},
               {"requests", table.max_num_seqs},
               {"layout", table.paged ? "paged" : "contiguous"},
               {"block_size", table.page_size},
               {"weight_bytes", plan.weight_bytes},
               {"activation_bytes", plan.activation_bytes},
               {"workspace_bytes", plan.workspace_bytes},
               {"graph_bytes", plan.graph_bytes},
               {"encoder_bytes", plan.encoder_bytes},
               {"picture_bytes", plan.picture_bytes},
               {"swap_bytes", plan.swap_bytes},
               {"host_swap_bytes", plan.host_swap_bytes},
               {"available_bytes", plan.available_bytes},
               {"limit_bytes", plan.budget_bytes},
               {"kv", Json::array()},
               {"error", ErrorObject(table.fits)}};
  if (!pictures.empty()) json["images"] = PicturesJson(pictures);
  for (const MemoryTable::Row& row : table.rows) json["kv"].push_back(RowJson(row));
  return DumpJson(json);
}

// What the given images and videos would take.
StatusOr<std::vector<PictureFacts>> Pictures(const ProgramRun& run) {
  Message message;
  KU_ASSIGN_OR_RETURN(message.parts, ReadMedia(run, {.media = run.options.media}));
  std::vector<PictureFacts> facts;
  if (run.pictures == nullptr) return facts;
  KU_ASSIGN_OR_RETURN(const auto inputs, run.pictures->Of({message}));
  for (const VisionInput* input : inputs) facts.emplace_back(*input);
  return facts;
}

std::string PictureLines(const std::vector<PictureFacts>& pictures) {
  std::string lines = pictures.empty() ? "" : "\n";
  for (size_t i = 0; i < pictures.size(); ++i) {
    lines += "  " + pictures[i].Title(i) + ": " + pictures[i].Describe() + ", " +
             std::to_string(pictures[i].patches) + " patches\n";
  }
  return lines;
}

}  // namespace

StatusOr<int> RunDryRun(ProgramRun& run) {
  const Options& options = run.options;
  KU_ASSIGN_OR_RETURN(const std::vector<PictureFacts> pictures, Pictures(run));
  KU_ASSIGN_OR_RETURN(const MemoryTable table,
                      Engine::PlanTable(ForPictures(run, options.engine), *run.model));
  const std::string model = ModelName(options.engine.model_path);
  run.console.Answer(options.json() ? TableJson(table, model, pictures) + "\n"
                                    : table.Describe() + PictureLines(pictures));
  if (table.fits.ok()) {
    LogInfo(table.chosen().plan.Describe());
    return kExitOk;
  }
  run.console.Error(table.fits);
  return ExitCodeOf(table.fits.code());
}

}  // namespace kuiper::demo
