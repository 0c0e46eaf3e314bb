// Pages of a paged KV cache lie in slabs, which are allocated and freed as pages are needed.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "kuiper/kernels/cpu/host_memory.h"
#include "kuiper/kv/kv_cache.h"
#include "kuiper/ops/ops.h"
#include "test/kv/kv_cache_test_util.h"
#include "test/kv/late_device.h"

namespace kuiper {
namespace {

using test::kMegabyte;
using test::LateDevice;
using test::NaivePagesPerSlab;
using test::Tables;

struct SlabCase {
  KvShape shape;
  std::vector<size_t> slab_megabytes;
};

TEST(KvCacheSlabTest, SlabsArePowersOfTwoOfPagesUpTo256Megabytes) {
  const SlabCase cases[] = {
      {{32, 8, 128, 10, 256}, {256, 256, 128}},  // pages of 64 MB
      {{28, 8, 128, 9, 256}, {224, 224, 56}},    // 56 MB: four fit
      {{36, 8, 128, 5, 256}, {144, 144, 72}},    // 72 MB: two fit, three would as well
      {{80, 16, 128, 2, 256}, {320, 320}},       // a page larger than a slab
      {{32, 8, 128, 128, 16}, {256, 256}},       // 4 MB
      {{32, 8, 128, 64, 16}, {256}},             // exactly one slab
  };
  for (const SlabCase& c : cases) {
    LateDevice device;
    const auto cache = MakePagedKvCache(device, c.shape);
    ASSERT_TRUE(cache.ok());
    EXPECT_EQ(device.allocations().size(), 2u) << "only the null page's slab exists at first";
    const int64_t per_slab = NaivePagesPerSlab(c.shape.page_bytes());
    for (int pages = 1; pages <= c.shape.num_pages; ++pages) {
      ASSERT_TRUE((*cache)->EnsurePages(pages).ok());
      ASSERT_EQ(device.allocations().size(), 2u + (pages - 1) / per_slab) << pages;
    }
    device.Sync();
    ASSERT_EQ(device.allocations().size(), 1 + c.slab_megabytes.size());
    size_t total = 0;
    for (size_t i = 0; i < c.slab_megabytes.size(); ++i) {
      EXPECT_EQ(device.allocations()[1 + i].bytes, c.slab_megabytes[i] * kMegabyte);
      total += c.slab_megabytes[i] * kMegabyte;
    }
    EXPECT_EQ((*cache)->bytes(), total);
    EXPECT_EQ(total, c.shape.num_pages * c.shape.page_bytes());
    // First and last element of every page, where the strides are largest.
    Tables tables(device, 1, 1, 1);
    const KvShape& s = c.shape;
    const PagedView<float> first = (*cache)->View(0, tables.tensor).Paged<float>();
    const PagedView<float> last = (*cache)->View(s.layers - 1, tables.tensor).Paged<float>();
    for (int page = 0; page < s.num_pages; ++page) {
      const char* begin = device.allocations()[1 + page / per_slab].data +
                          page % per_slab * static_cast<int64_t>(s.page_bytes());
      ASSERT_EQ(reinterpret_cast<const char*>(first.At(page, 0, 0).data), begin);
      const KvRow<float> key = last.At(page, s.page_size - 1, s.kv_heads - 1);
      const float* v = last.ValueOf(key).data;
      ASSERT_EQ(reinterpret_cast<const char*>(v + s.head_dim), begin + s.page_bytes());
    }
  }
}

TEST(KvCacheSlabTest, GrowthMovesNothingAndKeepsTheTableAddress) {
  const KvShape shape = {32, 8, 128, 10, 256};
  LateDevice device;
  const auto cache = MakePagedKvCache(device, shape);
  device.Sync();
  Tables tables(device, 1, 1, 1);
  const PagedView<float> early = (*cache)->View(3, tables.tensor).Paged<float>();
  std::vector<float*> addresses;
  for (int page = 0; page < 4; ++page) {
    addresses.push_back(early.At(page, 5, 1).data);
    *addresses.back() = static_cast<float>(page);
  }
  EXPECT_EQ(early.slabs[1], nullptr) << "a slab that does not exist has no address";
  ASSERT_TRUE((*cache)->EnsurePages(10).ok());
  ASSERT_TRUE((*cache)->EnsurePages(2).ok()) << "asking for less shrinks nothing";
  device.Sync();
  const PagedView<float> late = (*cache)->View(3, tables.tensor).Paged<float>();
  EXPECT_EQ(late.slabs, early.slabs) << "a recorded step would read a stale table";
  for (int page = 0; page < 4; ++page) {
    EXPECT_EQ(late.At(page, 5, 1).data, addresses[page]);
    EXPECT_EQ(*late.At(page, 5, 1).data, static_cast<float>(page));
  }
  *early.At(9, 255, 7).data = 9.0f;  // a view made before the growth reaches the new pages
  EXPECT_EQ(*late.At(9, 255, 7).data, 9.0f);
}

// Keeps pages [0, kept) of nine, four per slab: their slabs stay, the others are allocated again.
TEST(KvCacheSlabTest, ShrinkingKeepsTheSlabsOfThePagesThatStay) {
  const KvShape shape = {32, 8, 128, 9, 256};
  for (int kept = 0; kept <= 9; ++kept) {
    SCOPED_TRACE("pages " + std::to_string(kept));
    LateDevice device;
    const auto cache = MakePagedKvCache(device, shape);
    ASSERT_TRUE((*cache)->EnsurePages(9).ok());  // its upload of the table is not done yet
    const int slabs = kept <= 4 ? 1 : kept <= 8 ? 2 : 3;
    Tables tables(device, 1, 1, 1);
    const PagedView<float> view = (*cache)->View(1, tables.tensor).Paged<float>();
    std::vector<float*> addresses;
    (*cache)->ShrinkTo(kept);
    device.Sync();
    for (int page = 0; page < std::min(4 * slabs, 9); ++page) {
      addresses.push_back(view.At(page, 5, 1).data);
      *addresses.back() = static_cast<float>(page);
    }
    EXPECT_EQ((*cache)->bytes(), std::min(4 * slabs, 9) * shape.page_bytes());
    for (int slab = 0; slab < 3; ++slab) EXPECT_EQ(view.slabs[slab] == nullptr, slab >= slabs);
    ASSERT_TRUE((*cache)->EnsurePages(9).ok());
    EXPECT_EQ((*cache)->bytes(), 9 * shape.page_bytes());
    EXPECT_EQ(device.allocations().size(), 4u + 3 - slabs);
    device.Sync();
    for (int page = 0; page < static_cast<int>(addresses.size()); ++page) {
      ASSERT_EQ(view.At(page, 5, 1).data, addresses[page]);
      EXPECT_EQ(*addresses[page], static_cast<float>(page));
    }
    *view.At(8, 255, 7).data = 8.0f;  // an old view reaches the pages that were allocated again
    EXPECT_EQ(*(*cache)->View(1, tables.tensor).Paged<float>().At(8, 255, 7).data, 8.0f);
  }
}

// The resident memory of the process, from /proc; 0 if that does not exist.
size_t ResidentBytes() {
  size_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

TEST(KvCacheSlabTest, ShrinkingGivesMemoryBackToTheSystem) {
  if (ResidentBytes() == 0) GTEST_SKIP() << "the system does not tell";
  const auto ops = MakeOps(Device{}, {.num_threads = 1}).value();
  const KvShape shape = {32, 8, 128, 8, 256};  // two slabs
  const size_t idle = cpu::AllocatedBytes();
  const auto cache = MakePagedKvCache(ops->device(), shape);
  ASSERT_TRUE((*cache)->EnsurePages(8).ok());
  const Tensor page = (*cache)->Page(7);  // 64 MB
  const size_t before = ResidentBytes();
  std::memset(page.data, 1, page.bytes());
  const size_t touched = ResidentBytes();
  EXPECT_GT(touched, before + 60 * kMegabyte);
  (*cache)->ShrinkTo(4);
  EXPECT_LT(ResidentBytes(), touched - 60 * kMegabyte);
  EXPECT_LT(cpu::AllocatedBytes() - idle, 257 * kMegabyte);
}

// Besides the used pages, at most the remainder of one huge page is touched.
TEST(KvCacheSlabTest, LargePagesLieInHugePages) {
  if (ResidentBytes() == 0) GTEST_SKIP() << "the system does not tell";
  constexpr size_t kHugePage = 2 * kMegabyte;
  const auto ops = MakeOps(Device{}, {.num_threads = 1}).value();
  const KvShape shape = {8, 8, 128, 33, 16};
  ASSERT_EQ(shape.page_bytes(), kMegabyte);
  const auto cache = MakePagedKvCache(ops->device(), shape);
  ASSERT_TRUE((*cache)->EnsurePages(33).ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>((*cache)->Page(2).data) % kHugePage, 0u);
  const size_t before = ResidentBytes();
  for (int page = 1; page <= 4; ++page) {
    const Tensor bytes = (*cache)->Page(page);
    std::memset(bytes.data, 1, bytes.bytes());
  }
  EXPECT_GE(ResidentBytes(), before + 4 * kMegabyte);
  EXPECT_LT(ResidentBytes(), before + 7 * kMegabyte);
}

TEST(KvCacheSlabTest, ExhaustionKeepsWhatWasUsable) {
  const KvShape shape = {32, 8, 128, 10, 256};
  LateDevice device(600 * kMegabyte);
  const auto cache = MakePagedKvCache(device, shape);
  ASSERT_TRUE(cache.ok());
  const Status status = (*cache)->EnsurePages(10);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "KV cache: cannot grow from 512 MB by 128 MB: the device is full");
  EXPECT_EQ(status.hint(), "use less");
  EXPECT_EQ((*cache)->bytes(), 512 * kMegabyte);
  EXPECT_TRUE((*cache)->EnsurePages(8).ok());
  device.Sync();
  Tables tables(device, 1, 1, 1);
  const PagedView<float> view = (*cache)->View(0, tables.tensor).Paged<float>();
  EXPECT_EQ(reinterpret_cast<char*>(view.At(7, 0, 0).data),
            device.allocations()[2].data + 3 * shape.page_bytes());
  device.set_capacity(700 * kMegabyte);
  EXPECT_TRUE((*cache)->EnsurePages(10).ok());
  EXPECT_EQ((*cache)->bytes(), 640 * kMegabyte);
}

}  // namespace
}  // namespace kuiper
