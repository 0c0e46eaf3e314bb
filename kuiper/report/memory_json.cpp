#include "kuiper/report/memory_json.h"

#include <nlohmann/json.hpp>

#include "kuiper/report/result_json.h"

namespace kuiper {
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

}  // namespace

std::string MemoryJson(const MemoryTable& table, const std::string& model,
                       const std::vector<PictureFacts>& pictures, Speller spell) {
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
               {"error", ErrorObject(table.fits, spell)}};
  if (!pictures.empty()) json["images"] = PicturesJson(pictures);
  for (const MemoryTable::Row& row : table.rows) json["kv"].push_back(RowJson(row));
  return DumpJson(json);
}

}  // namespace kuiper
