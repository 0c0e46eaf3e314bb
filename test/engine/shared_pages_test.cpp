// What sequences of a step share, against naive loops on random tables.
#include "kuiper/engine/shared_pages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

namespace kuiper {
namespace {

struct RandomPlan {
  // Tables begin with up to 12 pages of which each is one of two, so that many begin alike, and end
  // with a page of their own that is not full.
  RandomPlan(uint32_t seed, int page_size) : engine(seed) {
    const int count = Below(12), decodes = Below(count + 1);
    for (int i = 0; i < count; ++i) {
      auto seq = std::make_unique<Sequence>();
      const int shared = Below(13);
      for (int p = 0; p < shared; ++p) {
        seq->pages.push_back(1 + 2 * p + (Below(4) == 0 ? 1 : 0));
      }
      seq->pages.push_back(1000 + i);
      plan.entries.push_back({.seq = seq.get(),
                              .begin = Below((shared + 1) * page_size),
                              .num_tokens = Below(5) == 0 ? 2 : 1,
                              .decodes = i < decodes});
      seqs.push_back(std::move(seq));
    }
  }
  int Below(int n) { return static_cast<int>(engine() % static_cast<uint32_t>(n)); }

  std::mt19937 engine;
  std::vector<std::unique_ptr<Sequence>> seqs;
  StepPlan plan;
};

std::vector<const Sequence*> Order(const StepPlan& plan) {
  std::vector<const Sequence*> order;
  for (const StepPlan::Entry& entry : plan.entries) order.push_back(entry.seq);
  return order;
}

TEST(SharedPagesTest, DecodesThatBeginAlikeStandTogether) {
  int moved = 0;
  for (uint32_t seed = 0; seed < 500; ++seed) {
    RandomPlan random(seed, 16);
    StepPlan& plan = random.plan;
    std::vector<const Sequence*> expected, before = Order(plan);
    const auto add = [&](size_t i) { expected.push_back(plan.entries[i].seq); };
    for (size_t i = 0; i < plan.entries.size(); ++i) {
      if (!plan.entries[i].decodes) {
        add(i);
        continue;
      }
      const auto begins_like_i = [&](size_t j) {
        return plan.entries[j].decodes && before[j]->pages[0] == before[i]->pages[0];
      };
      bool is_first = true;
      for (size_t j = 0; j < i; ++j) is_first = is_first && !begins_like_i(j);
      for (size_t j = i; is_first && j < plan.entries.size(); ++j) {
        if (begins_like_i(j)) add(j);
      }
    }
    GroupByFirstPage(&plan);
    EXPECT_EQ(Order(plan), expected) << "seed " << seed;
    moved += expected != before;
  }
  EXPECT_GT(moved, 100);
}

TEST(SharedPagesTest, CountsTheTokensOfEqualPages) {
  int shared = 0, short_of_it = 0;
  for (uint32_t seed = 0; seed < 500; ++seed) {
    const int page_size = 1 << seed % 9;
    const RandomPlan random(seed, page_size);
    const std::vector<StepPlan::Entry>& entries = random.plan.entries;
    for (size_t i = 1; i < entries.size(); ++i) {
      const StepPlan::Entry &a = entries[i - 1], &b = entries[i];
      size_t pages = 0;
      while (pages < a.seq->pages.size() && pages < b.seq->pages.size() &&
             a.seq->pages[pages] == b.seq->pages[pages]) {
        ++pages;
      }
      int expected = static_cast<int>(pages) * page_size;
      expected = std::min(expected, std::min(a.begin, b.begin));
      if (a.num_tokens > 1 || b.num_tokens > 1) expected = 0;
      short_of_it += expected > 0 && expected < kMinSharedTokens;
      if (expected < kMinSharedTokens) expected = 0;
      shared += expected > 0;
      EXPECT_EQ(SharedTokens(a, b, page_size), expected) << "seed " << seed;
    }
  }
  EXPECT_GT(shared, 100);
  EXPECT_GT(short_of_it, 100);
}

}  // namespace
}  // namespace kuiper
