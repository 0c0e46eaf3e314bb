// Describes the content of a KV cache for users. Texts may contain names of parameters (Param).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kuiper/engine/engine.h"
#include "kuiper/kv/page_map.h"

namespace kuiper {

std::string CacheText(const KvStats& kv);

// Where the keys and values of the newest answer and of its prompt were stored when it ended.
struct BlockTable {
  int turn = 0;    // 0: there is no answer
  int tokens = 0;  // tokens that have keys and values
  std::vector<int32_t> pages;
};
// `map`: current state of the pool; absent if contiguous. `most_lines`: maximum lines for the
// blocks, at least 1; five more lines surround them.
std::string BlockTableText(const KvStats& kv, const BlockTable& table,
                           const std::optional<PageMap>& map, size_t most_lines = SIZE_MAX);

}  // namespace kuiper
