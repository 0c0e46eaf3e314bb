#include "kuiper/kv/prefix_cache.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kuiper/base/check.h"
#include "kuiper/base/hash.h"

namespace kuiper {
namespace {

constexpr int kNoIndex = -1;  // pages of the tree are in no block table

}  // namespace

PrefixCache::PrefixCache(BlockPool& pool, int64_t max_tokens, PrefixObserver observer)
    : pool_(pool),
      observer_(std::move(observer)),
      max_pages_(pool.num_pages()),
      node_of_page_(pool.num_pages() + 1) {
  KU_CHECK(max_tokens >= 0);
  pool_.set_listener(this);
  if (max_tokens > 0) {
    max_pages_ = static_cast<int>(std::min<int64_t>(max_pages_, max_tokens / pool.page_size()));
  }
}

PrefixCache::~PrefixCache() {
  Clear();
  pool_.set_listener(nullptr);
}

PrefixCache::Match PrefixCache::Acquire(std::span<const uint64_t> keys, int max_tokens) {
  const size_t page_size = pool_.page_size();
  const size_t max_pages =
      std::min(keys.size(), static_cast<size_t>(std::max(max_tokens, 0))) / page_size;
  ++clock_;
  Match match;
  Node* node = &root_;
  while (match.pages.size() < max_pages) {
    Node* child = Child(node, keys.subspan(match.pages.size() * page_size, page_size));
    if (child == nullptr) break;
    Touch(child);
    pool_.AddRef(child->page);
    match.pages.push_back(child->page);
    node = child;
  }
  match.cursor = {static_cast<int>(match.pages.size()), node->page, node->serial};
  match.num_tokens = static_cast<int>(match.pages.size() * page_size);
  ++stats_.lookups;
  stats_.hits += match.num_tokens > 0;
  stats_.tokens_requested += static_cast<int64_t>(keys.size());
  stats_.tokens_hit += match.num_tokens;
  return match;
}

void PrefixCache::Return(std::span<const uint64_t> keys, const Match& match) {
  pool_.Release(match.pages);
  --stats_.lookups;
  stats_.hits -= match.num_tokens > 0;
  stats_.tokens_requested -= static_cast<int64_t>(keys.size());
  stats_.tokens_hit -= match.num_tokens;
}

bool PrefixCache::Computed(std::span<const uint64_t> keys, std::span<int32_t> pages, Cursor* cursor,
                           const PageHolder& holder) {
  const size_t full = keys.size() / pool_.page_size();
  if (full == 0) return true;
  const int room = max_pages_ - num_pages() + num_evictable();
  const size_t count = std::min<size_t>(full, std::max(room, 1));
  return Extend(cursor, keys.first(count * pool_.page_size()), pages.first(count), holder);
}

void PrefixCache::Insert(std::span<const uint64_t> keys, std::span<int32_t> pages) {
  Cursor root;
  KU_CHECK(Extend(&root, keys, pages));
}

bool PrefixCache::Extend(Cursor* cursor, std::span<const uint64_t> keys, std::span<int32_t> pages,
                         const PageHolder& holder) {
  Node* node = NodeAt(*cursor);
  if (node == nullptr) return false;
  const size_t page_size = pool_.page_size();
  size_t num_full = std::min(keys.size() / page_size, pages.size());
  ++clock_;
  if (node != &root_) Touch(node);
  size_t i = 0;
  for (; i < num_full; ++i) {
    Node* child = Child(node, keys.subspan(i * page_size, page_size));
    if (child == nullptr) break;
    if (child->page != pages[i] && pool_.ref_count(pages[i]) > 1) {
      num_full = i;
      break;
    }
    Touch(child);
    if (child->page != pages[i]) {
      pool_.AddRef(child->page);
      pool_.Release(pages[i]);
      const int index = cursor->num_pages + static_cast<int>(i);
      pool_.NotifyReleased(holder, index, pages[i]);
      pages[i] = child->page;
      pool_.NotifyHeld(KvEvent::Kind::kShare, holder, index, pages[i]);
    }
    node = child;
  }
  const int64_t excess = num_pages() + static_cast<int64_t>(num_full - i) - max_pages_;
  // The node to extend carries this call's stamp, so eviction cannot take it.
  if (excess > 0) EvictOlderThan(clock_, static_cast<int>(std::min<int64_t>(excess, num_pages())));
  for (; i < num_full && num_pages() < max_pages_; ++i) {
    node = AddChild(node, keys.subspan(i * page_size, page_size), pages[i]);
  }
  *cursor = {cursor->num_pages + static_cast<int>(i), node->page, node->serial};
  return true;
}

int PrefixCache::Evict(int num_pages) {
  return EvictOlderThan(clock_ + 1, num_pages);
}

// Skips leaves with another holder. There are at most as many of these as sequences, since a
// sequence holds one path.
int PrefixCache::EvictOlderThan(uint64_t limit, int num_pages) {
  int evicted = 0;
  auto it = leaves_.begin();
  while (evicted < num_pages && it != leaves_.end() && it->first < limit) {
    Node* node = it->second;
    if (pool_.ref_count(node->page) > 1) {
      ++it;
      continue;
    }
    it = leaves_.erase(it);
    Node* parent = node->parent;
    node_of_page_[node->page] = nullptr;
    pool_.Release(node->page);
    pool_.NotifyHeld(KvEvent::Kind::kEvict, {}, kNoIndex, node->page);
    if (node->block != 0) observer_({.kind = PrefixEvent::Kind::kRemoved, .hash = node->block});
    const auto [begin, end] = nodes_.equal_range(node->hash);
    nodes_.erase(std::find_if(
        begin, end, [&](const Nodes::value_type& entry) { return entry.second.get() == node; }));
    ++evicted;
    if (--parent->num_children == 0 && parent != &root_) {
      // The parent comes later in this walk, or next if it is older than the leaves already passed.
      const auto added = leaves_.emplace(parent->last_used, parent).first;
      if (it == leaves_.end() || added->first < it->first) it = added;
    }
  }
  stats_.evicted_pages += evicted;
  return evicted;
}

void PrefixCache::Clear() {
  if (observer_ && !nodes_.empty()) observer_({.kind = PrefixEvent::Kind::kCleared});
  std::fill(node_of_page_.begin(), node_of_page_.end(), nullptr);
  for (const auto& [hash, node] : nodes_) {
    pool_.Release(node->page);
    pool_.NotifyReleased({}, kNoIndex, node->page);
  }
  leaves_.clear();
  nodes_.clear();
  root_.num_children = 0;
  num_pinned_ = 0;
}

int PrefixCache::num_evictable() const {
  return num_pages() - num_pinned_;
}

int PrefixCache::num_pages() const {
  return static_cast<int>(nodes_.size());
}

uint64_t PrefixCache::Hash(const Node* parent, std::span<const uint64_t> keys) {
  // Multiply and fold, so that every bit of a key reaches the low bits that choose the bucket.
  uint64_t hash = reinterpret_cast<uintptr_t>(parent);
  for (uint64_t k : keys) {
    hash = (hash ^ k) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 32;
  }
  return hash;
}

PrefixCache::Node* PrefixCache::Child(const Node* parent, std::span<const uint64_t> keys) const {
  if (parent->num_children == 0) return nullptr;
  const auto [begin, end] = nodes_.equal_range(Hash(parent, keys));
  const auto it = std::find_if(begin, end, [&](const Nodes::value_type& entry) {
    return entry.second->parent == parent && std::ranges::equal(entry.second->keys, keys);
  });
  return it == end ? nullptr : it->second.get();
}

PrefixCache::Node* PrefixCache::AddChild(Node* parent, std::span<const uint64_t> keys,
                                         int32_t page) {
  if (parent != &root_ && parent->num_children == 0) leaves_.erase(parent->last_used);
  ++parent->num_children;
  auto node = std::make_unique<Node>();
  node->parent = parent;
  node->keys.assign(keys.begin(), keys.end());
  node->page = page;
  node->serial = ++last_serial_;
  node->last_used = clock_;
  node->hash = Hash(parent, keys);
  Node* added = node.get();
  nodes_.emplace(added->hash, std::move(node));
  leaves_.emplace(clock_, added);
  KU_CHECK(node_of_page_[page] == nullptr, "a page is inserted twice");
  pool_.AddRef(page);
  pool_.NotifyHeld(KvEvent::Kind::kShare, {}, kNoIndex, page);
  node_of_page_[page] = added;
  Pin(added);  // the caller holds it
  if (observer_) NotifyStored(added);
  return added;
}

void PrefixCache::NotifyStored(Node* node) {
  const bool is_first = node->parent == &root_;
  const bool has_ids = std::ranges::all_of(
      node->keys, [](uint64_t key) { return key <= std::numeric_limits<int32_t>::max(); });
  if (!has_ids || (!is_first && node->parent->block == 0)) return;
  PrefixEvent event;
  event.tokens.assign(node->keys.begin(), node->keys.end());
  event.parent = node->parent->block;
  const uint64_t hash = Fnv1a64(event.tokens, is_first ? kFnv1a64Init : event.parent);
  event.hash = std::max<uint64_t>(hash & std::numeric_limits<int64_t>::max(), 1);
  node->block = event.hash;
  observer_(std::move(event));
}

PrefixCache::Node* PrefixCache::NodeAt(const Cursor& cursor) {
  if (cursor.num_pages == 0) return &root_;
  Node* node = node_of_page_[cursor.page];
  return node != nullptr && node->serial == cursor.serial ? node : nullptr;
}

void PrefixCache::Pin(Node* node) {
  ++num_pinned_;
  for (Node* up = node->parent; up != &root_; up = up->parent) {
    if (up->num_pinned_children++ > 0 || pool_.ref_count(up->page) > 1) return;
    ++num_pinned_;
  }
}

void PrefixCache::OnShared(int32_t page) {
  Node* node = node_of_page_[page];
  if (node != nullptr && node->num_pinned_children == 0) Pin(node);
}

void PrefixCache::OnUnshared(int32_t page) {
  Node* node = node_of_page_[page];
  if (node == nullptr || node->num_pinned_children > 0) return;
  --num_pinned_;
  for (Node* up = node->parent; up != &root_; up = up->parent) {
    if (--up->num_pinned_children > 0 || pool_.ref_count(up->page) > 1) return;
    --num_pinned_;
  }
}

void PrefixCache::Touch(Node* node) {
  if (node->num_children == 0) {
    leaves_.erase(node->last_used);
    leaves_.emplace(clock_, node);
  }
  node->last_used = clock_;
}

void PrefixCache::CheckInvariants() const {
  KU_CHECK(num_pages() <= max_pages_, "the tree is over its capacity");
  std::vector<bool> seen(pool_.num_pages() + 1, false);
  std::vector<bool> pinned(pool_.num_pages() + 1, false);
  std::map<const Node*, int> num_children;
  size_t num_leaves = 0;
  for (const auto& [hash, node] : nodes_) {
    KU_CHECK(node->keys.size() == static_cast<size_t>(pool_.page_size()));
    KU_CHECK(pool_.ref_count(node->page) >= 1, "the tree holds a free page");
    KU_CHECK(!seen[node->page], "a page is in the tree twice");
    seen[node->page] = true;
    KU_CHECK(node_of_page_[node->page] == node.get());
    KU_CHECK(Child(node->parent, node->keys) == node.get(), "a node is not found by its keys");
    KU_CHECK(node->last_used <= clock_);
    ++num_children[node->parent];
    if (pool_.ref_count(node->page) > 1) {
      for (const Node* n = node.get(); n != &root_ && !pinned[n->page]; n = n->parent) {
        pinned[n->page] = true;
      }
    }
    if (node->num_children > 0) continue;
    ++num_leaves;
    const auto leaf = leaves_.find(node->last_used);
    KU_CHECK(leaf != leaves_.end() && leaf->second == node.get(), "a leaf is not listed");
  }
  KU_CHECK(num_leaves == leaves_.size());
  KU_CHECK(root_.num_children == num_children[&root_]);
  KU_CHECK(std::count(pinned.begin(), pinned.end(), true) == num_pinned_);
  std::map<const Node*, int> pinned_children;
  for (const auto& [hash, node] : nodes_) pinned_children[node->parent] += pinned[node->page];
  for (const auto& [hash, node] : nodes_) {
    KU_CHECK(node->num_children == num_children[node.get()]);
    KU_CHECK(node->num_pinned_children == pinned_children[node.get()]);
  }
}

}  // namespace kuiper
