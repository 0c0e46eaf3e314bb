#include "kuiper/report/cache_text.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace kuiper {
namespace {

TEST(CacheText, TheBlockTableSaysWhatItIs) {
  KvStats kv;
  kv.page_size = 16;
  kv.prefix_cache = true;
  std::optional<PageMap> map(8);
  const auto tell = [&](KvEvent::Kind kind, int index, int page, int holders, int free) {
    map->Apply({.kind = kind,
                .holder = {.request = 1, .sequence = index < 0 ? 0 : 1},
                .index = index,
                .page = page,
                .num_holders = holders,
                .num_free = free});
  };
  using enum KvEvent::Kind;
  tell(kAllocate, 0, 4, 1, 7);
  tell(kAllocate, 1, 7, 1, 6);
  tell(kShare, -1, 4, 2, 6);
  tell(kRelease, 0, 4, 1, 6);
  tell(kFree, 1, 7, 0, 7);
  ASSERT_TRUE(map->status().ok()) << map->status().message();
  const std::string pool =
      "\npool: 7 of 8 blocks free; so far 2 allocated, 1 shared,\n"
      "      0 copied, 0 evicted, 0 swapped out";
  EXPECT_EQ(BlockTableText(kv, {}, map), "block table: none, there is no answer yet" + pool);
  EXPECT_EQ(BlockTableText(kv, {3, 21, {4, 7}}, map),
            "block table: turn 3, 2 blocks of 16 tokens, 21 tokens\n"
            "  [0] tokens 0..15 -> block 4, kept by the prefix cache\n"
            "  [1] tokens 16..20 -> block 7, free again" +
                pool);
  kv.prefix_cache = false;
  EXPECT_NE(BlockTableText(kv, {3, 21, {4, 7}}, map).find("given back"), std::string::npos);
  EXPECT_EQ(SpellParams(BlockTableText(kv, {}, {}), BareName),
            "the KV cache is one contiguous buffer (paged_attention uses blocks)");
}

TEST(CacheText, BlocksInARowAreOneLine) {
  KvStats kv;
  kv.page_size = 16;
  kv.prefix_cache = true;
  const std::optional<PageMap> map(20);
  const auto lines = [&](const std::vector<int32_t>& pages, size_t most) {
    const std::string text =
        BlockTableText(kv, {1, static_cast<int>(pages.size()) * 16, pages}, map, most);
    const size_t begin = text.find('\n') + 1;
    return text.substr(begin, text.find("\npool") - begin);
  };
  EXPECT_EQ(lines({3, 4, 5, 9, 8, 7, 1}, SIZE_MAX),
            "  [0..2] tokens 0..47 -> blocks 3..5, free again\n"
            "  [3..5] tokens 48..95 -> blocks 9..7, free again\n"
            "  [6] tokens 96..111 -> block 1, free again");
  EXPECT_EQ(lines({3, 5, 7, 9}, 4).find("more runs"), std::string::npos);
  EXPECT_EQ(lines({3, 5, 7, 9, 11}, 2),
            "  [0] tokens 0..15 -> block 3, free again\n  and 4 more runs of blocks");
}

}  // namespace
}  // namespace kuiper
