#include <algorithm>
#include <cstdio>

#include "kuiper/base/check.h"
#include "kuiper/engine/memory_plan.h"

namespace kuiper {
namespace {

// About three digits: "96 KB", "151 MB", "16.4 GB".
std::string Amount(double bytes) {
  const char* sign = bytes < 0 ? "-" : "";
  const double size = bytes < 0 ? -bytes : bytes;
  char text[32];
  if (size >= 1e9) {
    std::snprintf(text, sizeof(text), size >= 1e12 ? "%s%.0f GB" : "%s%.1f GB", sign, size / 1e9);
  } else if (size >= 1e6) {
    std::snprintf(text, sizeof(text), size >= 1e7 ? "%s%.0f MB" : "%s%.1f MB", sign, size / 1e6);
  } else {
    std::snprintf(text, sizeof(text), "%s%.0f KB", sign, size / 1e3);
  }
  return text;
}

std::string Padded(const std::string& text, int width) {
  return std::string(std::max(0, width - static_cast<int>(text.size())), ' ') + text;
}

std::string PartLines(const MemoryPlan& plan) {
  std::string text;
  const auto part = [&](const char* name, size_t bytes, const std::string& more = "") {
    text += std::string("  ") + name + std::string(14 - std::char_traits<char>::length(name), ' ') +
            Padded(Amount(static_cast<double>(bytes)), 9) + more + "\n";
  };
  part("weights", plan.weight_bytes);
  part("activations", plan.activation_bytes);
  part("workspace", plan.workspace_bytes);
  if (plan.graph_bytes > 0) part("graphs", plan.graph_bytes);
  if (plan.encoder_bytes > 0) part("encoder", plan.encoder_bytes);
  if (plan.picture_bytes > 0) part("pictures", plan.picture_bytes);
  if (plan.swap_bytes > 0) part("swap space", plan.swap_bytes, ", of the same memory");
  if (plan.host_swap_bytes > 0) part("swap space", plan.host_swap_bytes, ", of the host's memory");
  char share[32];
  std::snprintf(share, sizeof(share), ", %.3g%% of ", plan.utilization * 100);
  part("limit", plan.budget_bytes,
       share + Amount(static_cast<double>(plan.available_bytes)) + " available");
  return text;
}

std::string RowLine(const std::string& type, const std::string& per_1k, const std::string& kv,
                    const std::string& total, const std::string& free, const std::string& context) {
  std::string line = "  " + type + std::string(10 - std::min<size_t>(10, type.size()), ' ') +
                     Padded(per_1k, 12) + Padded(kv, 10) + Padded(total, 10) + Padded(free, 10) +
                     Padded(context, 17);
  return line + "\n";
}

}  // namespace

const MemoryTable::Row& MemoryTable::chosen() const {
  const auto it =
      std::find_if(rows.begin(), rows.end(), [](const Row& row) { return row.is_chosen; });
  KU_CHECK(it != rows.end(), "a table has the row of its configuration");
  return *it;
}

std::string MemoryTable::Describe() const {
  std::string text =
      "memory plan: context " + std::to_string(max_context) + ", " + std::to_string(max_num_seqs) +
      (max_num_seqs == 1 ? " request" : " requests") + ", KV cache " +
      (paged ? "of " + std::to_string(page_size) + "-token blocks" : std::string("contiguous")) +
      "\n" + PartLines(chosen().plan) + "\n";
  text += RowLine("KV type", "KV/1k tokens", "KV cache", "total", "free", "largest context");
  for (const Row& row : rows) {
    const std::string context =
        row.largest_context == 0 ? "none fits" : std::to_string(row.largest_context);
    text += RowLine(row.format.name() + std::string(row.is_chosen ? " *" : ""),
                    Amount(static_cast<double>(row.kv_bytes_per_1k)),
                    Amount(static_cast<double>(row.plan.kv_bytes)),
                    Amount(static_cast<double>(row.plan.total_bytes())),
                    Amount(static_cast<double>(row.free_bytes())), context);
  }
  return text + "  * of this run; 1k tokens are 1024; the model's own limit is " +
         std::to_string(model_limit) + " tokens\n";
}

}  // namespace kuiper
