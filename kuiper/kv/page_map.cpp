#include "kuiper/kv/page_map.h"

#include "kuiper/base/check.h"

namespace kuiper {
namespace {

// Returns entry `index` of the sequence's table, which grows to include it.
int32_t& At(PageMap::Tables& tables, int64_t sequence, int index) {
  std::vector<int32_t>& table = tables[sequence];
  if (index >= static_cast<int>(table.size())) table.resize(index + 1, 0);
  return table[index];
}

// Returns entry `index` of the sequence's table; 0 if there is none.
int32_t Find(const PageMap::Tables& tables, int64_t sequence, int index) {
  const auto it = tables.find(sequence);
  const bool has = it != tables.end() && index >= 0 && index < static_cast<int>(it->second.size());
  return has ? it->second[index] : 0;
}

void Erase(PageMap::Tables& tables, int64_t sequence, int index) {
  std::vector<int32_t>& table = tables.at(sequence);
  table[index] = 0;
  while (!table.empty() && table.back() == 0) table.pop_back();
  if (table.empty()) tables.erase(sequence);
}

}  // namespace

PageMap::PageMap(int num_pages) : pages_(num_pages + 1), num_free_(num_pages) {
  KU_CHECK(num_pages >= 0);
}

void PageMap::Apply(const KvEvent& event) {
  if (!status_.ok()) return;
  const char* wrong = Change(event);
  if (wrong == nullptr && event.num_free != num_free_) wrong = "the free pages do not add up";
  if (wrong != nullptr) {
    status_ = Status(StatusCode::kInternal,
                     std::string("a KV cache event contradicts those before it: ") + wrong + ": " +
                         KvEventJson(event));
    return;
  }
  ++counts_[event.kind];
}

const char* PageMap::Change(const KvEvent& event) {
  using enum KvEvent::Kind;
  if (event.kind == kSwapFree) return Swap(event);
  if (event.page < 1 || event.page > num_pages()) return "there is no such page";
  Page& page = pages_[event.page];
  const char* wrong = nullptr;
  switch (event.kind) {
    case kAllocate:
    case kShare:
      wrong = Hold(event, page);
      break;
    case kRelease:
    case kFree:
    case kEvict:
      wrong = Release(event, page);
      break;
    case kCopy: {
      const bool can_read =
          event.from >= 1 && event.from <= num_pages() && pages_[event.from].num_holders > 0;
      if (!can_read) return "a page without holders is copied";
      [[fallthrough]];
    }
    default:
      if (Find(tables_, event.holder.sequence, event.index) != event.page) {
        return "the holder does not have the page";
      }
      if (event.kind != kCopy) wrong = Swap(event);
  }
  if (wrong == nullptr && event.num_holders != page.num_holders) wrong = "a holder is missing";
  return wrong;
}

const char* PageMap::Hold(const KvEvent& event, Page& page) {
  const bool allocates = event.kind == KvEvent::Kind::kAllocate;
  if (allocates && page.num_holders > 0) return "a page is allocated twice";
  if (!allocates && page.num_holders == 0) return "a free page is shared";
  num_free_ -= allocates;
  ++page.num_holders;
  if (event.index < 0) {
    if (page.is_cached) return "the prefix cache keeps a page twice";
    page.is_cached = true;
    return nullptr;
  }
  int32_t& place = At(tables_, event.holder.sequence, event.index);
  if (place != 0) return "the holder has another page there";
  place = event.page;
  return nullptr;
}

const char* PageMap::Release(const KvEvent& event, Page& page) {
  if (event.index < 0) {
    if (!page.is_cached) return "the prefix cache does not have the page";
    page.is_cached = false;
  } else {
    if (Find(tables_, event.holder.sequence, event.index) != event.page) {
      return "the holder does not have the page";
    }
    Erase(tables_, event.holder.sequence, event.index);
  }
  --page.num_holders;
  const bool is_free = page.num_holders == 0;
  num_free_ += is_free;
  return is_free == (event.kind != KvEvent::Kind::kRelease) ? nullptr : "its holders do not add up";
}

const char* PageMap::Swap(const KvEvent& event) {
  const int64_t sequence = event.holder.sequence;
  if (event.kind == KvEvent::Kind::kSwapOut) {
    int32_t& place = At(host_tables_, sequence, event.index);
    if (place != 0) return "the holder has another host page there";
    place = event.host_page;
    return nullptr;
  }
  if (event.host_page == 0 || Find(host_tables_, sequence, event.index) != event.host_page) {
    return "the holder does not have the host page";
  }
  if (event.kind == KvEvent::Kind::kSwapFree) Erase(host_tables_, sequence, event.index);
  return nullptr;
}

}  // namespace kuiper
