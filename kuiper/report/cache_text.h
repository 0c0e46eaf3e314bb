// What a KV cache holds, for people. Texts may hold names of parameters (Param).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kuiper/engine/engine.h"
#include "kuiper/kv/page_map.h"

namespace kuiper {

std::string CacheText(const KvStats& kv);

// Where the keys and values of the newest answer and of its prompt lay when it ended.
struct BlockTable {
  int turn = 0;    // 0: there is no answer
  int tokens = 0;  // that have keys and values
  std::vector<int32_t> pages;
};
// `map`: of the pool, as it is now; absent: contiguous. `most_lines`: of the blocks, at least 1;
// five more stand around them.
std::string BlockTableText(const KvStats& kv, const BlockTable& table,
                           const std::optional<PageMap>& map, size_t most_lines = SIZE_MAX);

}  // namespace kuiper
