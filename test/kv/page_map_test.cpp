// How a page map processes events, and that it detects streams that no pool can send.
// test/engine/scheduler_fuzz_test.cpp shows that the events of a scheduler are complete.
#include "kuiper/kv/page_map.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kuiper/kv/block_pool.h"

namespace kuiper {
namespace {

using enum KvEvent::Kind;
constexpr PageHolder kFirst = {.request = 1, .sequence = 1},
                     kSecond = {.request = 2, .sequence = 2};

KvEvent Event(KvEvent::Kind kind, PageHolder holder, int index, int32_t page, int holders,
              int free) {
  return {.kind = kind,
          .holder = holder,
          .index = index,
          .page = page,
          .num_holders = holders,
          .num_free = free};
}

TEST(PageMapTest, FollowsTablesHoldersAndFreePages) {
  PageMap map(4);
  map.Apply(Event(kAllocate, kFirst, 0, 1, 1, 3));
  map.Apply(Event(kAllocate, kFirst, 1, 2, 1, 2));
  map.Apply(Event(kShare, {}, -1, 1, 2, 2));
  map.Apply(Event(kShare, kSecond, 0, 1, 3, 2));
  EXPECT_EQ(map.tables(), (PageMap::Tables{{1, {1, 2}}, {2, {1}}}));
  EXPECT_TRUE(map.is_cached(1));
  map.Apply(Event(kRelease, kFirst, 0, 1, 2, 2));
  map.Apply(Event(kFree, kFirst, 1, 2, 0, 3));
  map.Apply(Event(kRelease, kSecond, 0, 1, 1, 3));
  map.Apply(Event(kEvict, {}, -1, 1, 0, 4));
  EXPECT_TRUE(map.status().ok()) << map.status().message();
  EXPECT_TRUE(map.tables().empty());
  EXPECT_EQ(map.num_free(), 4);
  EXPECT_FALSE(map.is_cached(1));
  EXPECT_EQ(map.num_events(kShare), 2);
}

TEST(PageMapTest, FollowsPagesToTheHostAndBack) {
  PageMap map(2);
  KvEvent out = Event(kSwapOut, kFirst, 0, 1, 1, 1), in = Event(kSwapIn, kFirst, 0, 2, 1, 1);
  KvEvent drop = Event(kSwapFree, kFirst, 0, 0, 0, 1);
  out.host_page = in.host_page = drop.host_page = 7;
  map.Apply(Event(kAllocate, kFirst, 0, 1, 1, 1));
  map.Apply(out);
  map.Apply(Event(kFree, kFirst, 0, 1, 0, 2));
  EXPECT_EQ(map.host_tables(), (PageMap::Tables{{1, {7}}}));
  map.Apply(Event(kAllocate, kFirst, 0, 2, 1, 1));
  map.Apply(in);
  map.Apply(drop);
  EXPECT_TRUE(map.status().ok()) << map.status().message();
  EXPECT_TRUE(map.host_tables().empty());
}

TEST(PageMapTest, NoticesWhatCannotBe) {
  const KvEvent allocated = Event(kAllocate, kFirst, 0, 1, 1, 1);
  const std::pair<std::vector<KvEvent>, const char*> cases[] = {
      {{allocated, Event(kAllocate, kSecond, 0, 1, 2, 0)}, "a page is allocated twice"},
      {{allocated, Event(kAllocate, kFirst, 0, 2, 1, 0)}, "another page there"},
      {{Event(kShare, kFirst, 0, 1, 1, 2)}, "a free page is shared"},
      {{Event(kAllocate, kFirst, 0, 3, 1, 1)}, "there is no such page"},
      {{Event(kAllocate, kFirst, 0, 0, 1, 1)}, "there is no such page"},
      {{Event(kAllocate, kFirst, 0, 1, 1, 2)}, "the free pages do not add up"},
      {{allocated, Event(kFree, kSecond, 0, 1, 0, 2)}, "the holder does not have the page"},
      {{allocated, Event(kFree, kFirst, 1, 1, 0, 2)}, "the holder does not have the page"},
      {{allocated, Event(kEvict, {}, -1, 1, 0, 2)}, "the prefix cache does not have the page"},
      {{allocated, Event(kRelease, kFirst, 0, 1, 0, 2)}, "its holders do not add up"},
      {{allocated, Event(kCopy, kFirst, 0, 1, 1, 1)}, "a page without holders is copied"},
      {{allocated, Event(kSwapIn, kFirst, 0, 1, 1, 1)}, "does not have the host page"},
      {{allocated, Event(kShare, kSecond, 0, 1, 3, 1)}, "a holder is missing"},
  };
  for (const auto& [events, what] : cases) {
    PageMap map(2);
    for (const KvEvent& event : events) map.Apply(event);
    EXPECT_NE(map.status().message().find(what), std::string::npos) << map.status().message();
  }
}

TEST(KvEventTest, IsALineOfJson) {
  KvEvent copy = Event(kCopy, kSecond, 3, 9, 1, 12);
  copy.from = 4;
  copy.num_tokens = 5;
  EXPECT_EQ(KvEventJson(copy),
            "{\"event\":\"copy\",\"request\":2,\"sequence\":2,\"logical\":3,\"page\":9,\"from\":4,"
            "\"tokens\":5,\"holders\":1,\"free\":12}\n");
  EXPECT_EQ(KvEventJson(Event(kEvict, {}, -1, 9, 0, 12)),
            "{\"event\":\"evict\",\"request\":null,\"sequence\":null,\"logical\":null,\"page\":9,"
            "\"holders\":0,\"free\":12}\n");
}

TEST(KvEventTest, PagesInARowAreOneLine) {
  std::vector<std::string> lines;
  KvEventLines log([&](const std::string& line) { lines.push_back(line); });
  log.Add(Event(kAllocate, kFirst, 0, 4, 1, 9));
  log.Add(Event(kAllocate, kFirst, 1, 5, 1, 8));
  log.Add(Event(kAllocate, kFirst, 2, 7, 1, 7));   // not the next page
  log.Add(Event(kAllocate, kSecond, 3, 8, 1, 6));  // another holder
  log.Add(Event(kFree, {}, -1, 1, 0, 7));
  log.Add(Event(kFree, {}, -1, 2, 0, 8));
  log.Flush();
  log.Flush();
  EXPECT_EQ(lines,
            (std::vector<std::string>{"request 1, sequence 1: allocate [0..1] block 4..5, 8 free",
                                      "request 1, sequence 1: allocate [2] block 7, 7 free",
                                      "request 2, sequence 2: allocate [3] block 8, 6 free",
                                      "prefix cache: free block 1..2, 8 free"}));
}

TEST(BlockPoolTest, TellsWhoWatches) {
  BlockPool pool(3, 16);
  std::vector<int32_t> pages;
  std::vector<KvEvent> events;
  ASSERT_TRUE(pool.Allocate(1, &pages));
  pool.NotifyHeld(kAllocate, kFirst, 0, pages[0]);  // no observer
  pool.set_observer([&](const KvEvent& event) { events.push_back(event); });
  pool.AddRef(pages[0]);
  pool.NotifyHeld(kShare, kSecond, 0, pages[0]);
  pool.Release(pages[0]);
  pool.NotifyReleased(kFirst, 0, pages[0]);
  pool.Release(pages[0]);
  pool.NotifyReleased(kSecond, 0, pages[0]);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].num_holders, 2);
  EXPECT_EQ(events[1].kind, kRelease);
  EXPECT_EQ(events[2].kind, kFree);
  EXPECT_EQ(events[2].num_free, 2);
  EXPECT_EQ(events[2].num_holders, 0);
}

}  // namespace
}  // namespace kuiper
