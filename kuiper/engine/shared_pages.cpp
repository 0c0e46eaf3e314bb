#include "kuiper/engine/shared_pages.h"

#include <algorithm>
#include <numeric>

namespace kuiper {

std::vector<int> GroupByFirstPage(std::span<const int32_t> first_pages) {
  std::vector<int> order(first_pages.size());
  std::iota(order.begin(), order.end(), 0);
  const auto by_page = [&](int a, int b) { return first_pages[a] < first_pages[b]; };
  std::stable_sort(order.begin(), order.end(), by_page);
  std::vector<int> leader(order.size());  // index of the first sequence with the same page
  for (size_t i = 0; i < order.size(); ++i) {
    const bool leads = i == 0 || by_page(order[i - 1], order[i]);
    leader[order[i]] = leads ? order[i] : leader[order[i - 1]];
  }
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return leader[a] < leader[b]; });
  return order;
}

int NumEqualPages(std::span<const int32_t> a, std::span<const int32_t> b, int known) {
  const auto end = std::mismatch(a.begin() + known, a.end(), b.begin() + known, b.end()).first;
  return static_cast<int>(end - a.begin());
}

int SharedTokens(int num_on_equal_pages, int a, int b) {
  const int tokens = std::min({num_on_equal_pages, a, b});
  return tokens < kMinSharedTokens ? 0 : tokens;
}

}  // namespace kuiper
