#include "kuiper/kv/prefix_cache.h"

#include <algorithm>
#include <utility>

#include "kuiper/base/check.h"

namespace kuiper {

size_t PrefixCache::NodeHash::operator()(const NodeKey& key) const {
  // Multiply and fold, so that every bit of a key reaches the low bits that choose the bucket.
  uint64_t hash = reinterpret_cast<uintptr_t>(key.parent);
  for (uint64_t k : key.keys) {
    hash = (hash ^ k) * 0x9E3779B97F4A7C15ull;
    hash ^= hash >> 32;
  }
  return static_cast<size_t>(hash);
}

bool PrefixCache::NodeEqual::operator()(const NodeKey& a, const NodeKey& b) const {
  return a.parent == b.parent && std::ranges::equal(a.keys, b.keys);
}

PrefixCache::PrefixCache(BlockPool& pool, int64_t max_tokens)
    : pool_(pool), max_pages_(pool.num_pages()) {
  KU_CHECK(max_tokens >= 0);
  if (max_tokens > 0) {
    max_pages_ = static_cast<int>(std::min<int64_t>(max_pages_, max_tokens / pool.page_size()));
  }
}

PrefixCache::~PrefixCache() {
  Clear();
}

PrefixCache::Match PrefixCache::Acquire(std::span<const uint64_t> keys, int max_tokens) {
  const size_t page_size = pool_.page_size();
  const size_t max_pages =
      std::min(keys.size(), static_cast<size_t>(std::max(max_tokens, 0))) / page_size;
  ++clock_;
  Match match;
  Node* node = &root_;
  while (match.pages.size() < max_pages) {
    node = Child(node, keys.subspan(match.pages.size() * page_size, page_size));
    if (node == nullptr) break;
    Touch(node);
    pool_.AddRef(node->page);
    match.pages.push_back(node->page);
  }
  match.num_tokens = static_cast<int>(match.pages.size() * page_size);
  ++stats_.lookups;
  stats_.hits += match.num_tokens > 0;
  stats_.tokens_requested += static_cast<int64_t>(keys.size());
  stats_.tokens_hit += match.num_tokens;
  return match;
}

void PrefixCache::Insert(std::span<const uint64_t> keys, std::span<const int32_t> pages) {
  const size_t page_size = pool_.page_size();
  const size_t num_full = std::min(keys.size() / page_size, pages.size());
  ++clock_;
  Node* node = &root_;
  size_t i = 0;
  while (i < num_full) {
    Node* child = Child(node, keys.subspan(i * page_size, page_size));
    if (child == nullptr) break;
    Touch(child);
    if (pool_.ref_count(child->page) == 1) {
      pool_.Release(child->page);
      pool_.AddRef(pages[i]);
      child->page = pages[i];
    }
    node = child;
    ++i;
  }
  const int64_t excess = num_pages() + static_cast<int64_t>(num_full - i) - max_pages_;
  // The path just walked carries this call's stamp, so eviction cannot take the node to extend.
  if (excess > 0) EvictOlderThan(clock_, static_cast<int>(std::min<int64_t>(excess, num_pages())));
  for (; i < num_full && num_pages() < max_pages_; ++i) {
    node = AddChild(node, keys.subspan(i * page_size, page_size), pages[i]);
  }
}

int PrefixCache::Evict(int num_pages) {
  return EvictOlderThan(clock_ + 1, num_pages);
}

// A leaf that somebody else holds is skipped. There are at most as many of those as sequences, for
// a sequence holds one path.
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
    pool_.Release(node->page);
    nodes_.erase(nodes_.find(NodeKey{parent, node->keys}));
    ++evicted;
    if (--parent->num_children == 0 && parent != &root_) {
      // A parent is at least as recent as its child, so it comes next or later.
      const auto added = leaves_.emplace(parent->last_used, parent).first;
      if (it == leaves_.end() || added->first < it->first) it = added;
    }
  }
  stats_.evicted_pages += evicted;
  return evicted;
}

void PrefixCache::Clear() {
  for (const auto& node : nodes_) pool_.Release(node->page);
  leaves_.clear();
  nodes_.clear();
  root_.num_children = 0;
}

int PrefixCache::num_evictable() const {
  // What is not evictable is a page that somebody else holds, and all above it.
  std::vector<bool> pinned(pool_.num_pages() + 1, false);
  int num_pinned = 0;
  for (const auto& held : nodes_) {
    if (pool_.ref_count(held->page) == 1) continue;
    for (const Node* n = held.get(); n != &root_ && !pinned[n->page]; n = n->parent) {
      pinned[n->page] = true;
      ++num_pinned;
    }
  }
  return num_pages() - num_pinned;
}

int PrefixCache::num_pages() const {
  return static_cast<int>(nodes_.size());
}

PrefixCache::Node* PrefixCache::Child(const Node* parent, std::span<const uint64_t> keys) const {
  const auto it = nodes_.find(NodeKey{parent, keys});
  return it == nodes_.end() ? nullptr : it->get();
}

PrefixCache::Node* PrefixCache::AddChild(Node* parent, std::span<const uint64_t> keys,
                                         int32_t page) {
  if (parent != &root_ && parent->num_children == 0) leaves_.erase(parent->last_used);
  ++parent->num_children;
  auto node = std::make_unique<Node>();
  node->parent = parent;
  node->keys.assign(keys.begin(), keys.end());
  node->page = page;
  node->last_used = clock_;
  Node* added = node.get();
  nodes_.insert(std::move(node));
  leaves_.emplace(clock_, added);
  pool_.AddRef(page);
  return added;
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
  std::map<const Node*, int> num_children;
  size_t num_leaves = 0;
  for (const auto& node : nodes_) {
    KU_CHECK(node->keys.size() == static_cast<size_t>(pool_.page_size()));
    KU_CHECK(pool_.ref_count(node->page) >= 1, "the tree holds a free page");
    KU_CHECK(!seen[node->page], "a page is in the tree twice");
    seen[node->page] = true;
    KU_CHECK(Child(node->parent, node->keys) == node.get(), "a node is not found by its keys");
    KU_CHECK(node->last_used <= clock_);
    KU_CHECK(node->parent == &root_ || node->parent->last_used >= node->last_used);
    ++num_children[node->parent];
    if (node->num_children > 0) continue;
    ++num_leaves;
    const auto leaf = leaves_.find(node->last_used);
    KU_CHECK(leaf != leaves_.end() && leaf->second == node.get(), "a leaf is not listed");
  }
  KU_CHECK(num_leaves == leaves_.size());
  KU_CHECK(root_.num_children == num_children[&root_]);
  for (const auto& node : nodes_) KU_CHECK(node->num_children == num_children[node.get()]);
}

}  // namespace kuiper
