// What the prefix cache of a paged KV cache holds, told block by block: who follows it can rebuild
// the tree, and tell which engine has the beginning of a prompt. The engine's configuration names
// who does. Host only.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace kuiper {

// A block is a full page. Its hash follows from the tokens from the first one to its last one, so
// that engines with pages of one size agree on it. Blocks behind what a token's id does not tell,
// which are pictures and requests with a salt, are not told.
struct PrefixEvent {
  enum class Kind : uint8_t { kStored, kRemoved, kCleared };
  Kind kind = Kind::kStored;
  uint64_t hash = 0;                 // below 2^63, not 0; kCleared: of no block
  uint64_t parent = 0;               // kStored: the block before it; 0: it is the first one
  std::vector<int32_t> tokens = {};  // kStored: [page_size]
};

// Called as a KvObserver is.
using PrefixObserver = std::function<void(PrefixEvent)>;

}  // namespace kuiper
