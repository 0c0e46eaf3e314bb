#include "kuiper/engine/shared_pages.h"

#include <algorithm>
#include <unordered_map>
#include <utility>
#include <vector>

namespace kuiper {

void GroupByFirstPage(StepPlan* plan) {
  std::unordered_map<int32_t, size_t> leaders;    // the first entry that begins with a page
  std::vector<std::pair<size_t, size_t>> places;  // leader, entry
  for (size_t i = 0; i < plan->entries.size() && plan->entries[i].decodes; ++i) {
    const auto leader = leaders.try_emplace(plan->entries[i].seq->pages.at(0), i).first;
    places.emplace_back(leader->second, i);
  }
  if (std::is_sorted(places.begin(), places.end())) return;
  std::sort(places.begin(), places.end());
  const std::vector<StepPlan::Entry> entries = plan->entries;
  for (size_t i = 0; i < places.size(); ++i) plan->entries[i] = entries[places[i].second];
}

int SharedTokens(const StepPlan::Entry& a, const StepPlan::Entry& b, int page_size) {
  if (a.num_tokens != 1 || b.num_tokens != 1) return 0;
  const std::vector<int32_t>& pages = a.seq->pages;
  const std::vector<int32_t>& others = b.seq->pages;
  const auto end = std::mismatch(pages.begin(), pages.end(), others.begin(), others.end()).first;
  const int on_pages = static_cast<int>(end - pages.begin()) * page_size;
  const int tokens = std::min({on_pages, a.begin, b.begin});
  return tokens < kMinSharedTokens ? 0 : tokens;
}

}  // namespace kuiper
