// Finds computed pages that can be reused: a radix tree over full pages of token keys. The tree
// holds one BlockPool reference per page and evicts the least recently used leaves that have no
// other holder. Only full, computed pages enter it, so a shared page is never written. Host only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "kuiper/kv/block_pool.h"
#include "kuiper/kv/reuse.h"

namespace kuiper {

class PrefixCache final : public KvReuse, private PageListener {
 public:
  // max_tokens: capacity of the tree (0: that of the pool). The pool must outlive the tree.
  // `observer` may be empty.
  PrefixCache(BlockPool& pool, int64_t max_tokens, PrefixObserver observer = {});
  ~PrefixCache() override;

  // Longest cached prefix of `keys` in whole pages; marks the path as used.
  Match Acquire(std::span<const uint64_t> keys, int max_tokens) override;
  void Return(std::span<const uint64_t> keys, const Match& match) override;
  // Extend, but with no more pages than fit: in a full tree the remainder would be inserted again
  // and again.
  [[nodiscard]] bool Computed(std::span<const uint64_t> keys, std::span<int32_t> pages,
                              Cursor* cursor, const PageHolder& holder) override;
  // Inserts the full pages of a computed sequence: keys[i * page_size ...] is in pages[i], on which
  // the caller holds a reference. If the tree already has an equal page, pages[i] and the reference
  // are exchanged for that page. So a prefix is stored once, and a sequence references the whole
  // path that its pages are on. A page with further holders is not exchanged, since that would not
  // free it; the insertion ends there. A full tree evicts older pages to make room, and drops the
  // last pages of the insertion that do not fit.
  void Insert(std::span<const uint64_t> keys, std::span<int32_t> pages);
  // Inserts what follows the path of `cursor` and advances it, so that a growing sequence costs
  // only its new pages. Returns false and does nothing if the tree no longer has the path.
  [[nodiscard]] bool Extend(Cursor* cursor, std::span<const uint64_t> keys,
                            std::span<int32_t> pages, const PageHolder& holder = {});
  int Evict(int num_pages) override;
  void Clear() override;

  // Pages that Evict can free: neither they nor any descendant is referenced outside the tree.
  int num_evictable() const override;
  int num_pages() const;  // pages in the tree
  // CHECKs that tree, leaves and reference counts agree; for tests and debug runs.
  void CheckInvariants() const;

 private:
  // One page of the tree. Nodes live in one flat table by their hashes, so a deep tree is destroyed
  // without recursion, and descending to a child is one lookup.
  struct Node {
    Node* parent = nullptr;
    std::vector<uint64_t> keys;  // [page_size]
    int32_t page = 0;
    int num_children = 0;
    int num_pinned_children = 0;
    uint64_t serial = 0;
    uint64_t last_used = 0;
    uint64_t hash = 0;   // over parent and keys
    uint64_t block = 0;  // PrefixEvent::hash; 0: not reported to the observer
  };
  using Nodes = std::unordered_multimap<uint64_t, std::unique_ptr<Node>>;
  static uint64_t Hash(const Node* parent, std::span<const uint64_t> keys);
  Node* Child(const Node* parent, std::span<const uint64_t> keys) const;
  Node* AddChild(Node* parent, std::span<const uint64_t> keys, int32_t page);
  Node* NodeAt(const Cursor& cursor);
  void Touch(Node* node);
  // A node is pinned while its page has another holder or one of its children is pinned.
  void Pin(Node* node);
  void OnShared(int32_t page) override;
  void OnUnshared(int32_t page) override;
  int EvictOlderThan(uint64_t limit, int num_pages);
  void NotifyStored(Node* node);

  BlockPool& pool_;
  const PrefixObserver observer_;
  int max_pages_;
  Node root_;  // holds no page
  Nodes nodes_;
  // Nodes without children by last use. Stamps are unique among leaves: one call stamps one path,
  // and a path has one leaf.
  std::map<uint64_t, Node*> leaves_;
  std::vector<Node*> node_of_page_;  // [pages of the pool]; null: not in the tree
  int num_pinned_ = 0;
  uint64_t clock_ = 0;
  uint64_t last_serial_ = 0;
};

}  // namespace kuiper
