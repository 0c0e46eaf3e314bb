#include "kuiper/server/kv_event_batch.h"

#include <gtest/gtest.h>

#include <vector>

namespace kuiper {
namespace {

#include "test/server/kv_event_goldens.inc"

using Kind = PrefixEvent::Kind;

PrefixEvent Stored(uint64_t hash, uint64_t parent, std::vector<int32_t> tokens) {
  return {Kind::kStored, hash, parent, std::move(tokens)};
}

std::string Hex(const std::string& bytes) {
  std::string text;
  for (const char c : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    text += {kDigits[static_cast<uint8_t>(c) >> 4], kDigits[c & 15]};
  }
  return text;
}

// Consecutive stored blocks are one event, as are blocks removed together.
TEST(KvEventBatch, IsWhatVllmsTypesEncodeTo) {
  constexpr uint64_t kLarge = (uint64_t{1} << 62) + 1;
  const std::vector<PrefixEvent> events = {Stored(5, 0, {1, 2}),
                                           Stored(kLarge, 5, {300, 70000}),
                                           Stored(9, 5, {3, 4}),
                                           {.kind = Kind::kRemoved, .hash = 5},
                                           {.kind = Kind::kRemoved, .hash = 9},
                                           {.kind = Kind::kCleared}};
  EXPECT_EQ(Hex(KvEventBatch(events, 1700000000.1, KvEventFormat::kMap)), kMapGolden);
  EXPECT_EQ(Hex(KvEventBatch(events, 1700000000.1, KvEventFormat::kArray)), kArrayGolden);
}

}  // namespace
}  // namespace kuiper
