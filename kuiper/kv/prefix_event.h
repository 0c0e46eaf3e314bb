// What the prefix cache of a paged KV cache holds, one event per block. An observer can rebuild the
// tree and find the engine that has the beginning of a prompt. The engine's configuration names the
// observer. Host only.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace kuiper {

// A block is a full page. Its hash depends on all tokens from the first one to the block's last
// one, so that engines with the same page size agree on it. Blocks that contain or follow an image
// token, and blocks of salted requests, are not reported: their keys are not token ids.
struct PrefixEvent {
  enum class Kind : uint8_t { kStored, kRemoved, kCleared };
  Kind kind = Kind::kStored;
  uint64_t hash = 0;                 // below 2^63, not 0; kCleared: unused
  uint64_t parent = 0;               // kStored: the previous block; 0: this is the first one
  std::vector<int32_t> tokens = {};  // kStored: [page_size]
};

// Called under the rules of KvObserver.
using PrefixObserver = std::function<void(PrefixEvent)>;

}  // namespace kuiper
