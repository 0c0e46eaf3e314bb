#include "kuiper/kv/kv_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include "kuiper/ops/ops.h"
#include "test/kv/kv_cache_test_util.h"
#include "test/kv/late_device.h"

namespace kuiper {
namespace {

using test::kMegabyte;
using test::LateDevice;
using test::NaivePagesPerSlab;
using test::Tables;
using ::testing::ExitedWithCode;

int64_t MultipleOf16(int64_t bytes) {
  return (bytes + 15) / 16 * 16;
}

// Bytes of [page_size][head_dim] elements; for INT8, the scales [page_size] follow them.
template <typename T>
int64_t NaiveRunBytes(const KvShape& s) {
  const int64_t elements = int64_t{s.page_size} * s.head_dim * sizeof(T);
  if (!std::is_same_v<T, int8_t>) return elements;
  return MultipleOf16(MultipleOf16(elements) + int64_t{4} * s.page_size);
}

// Byte of an element in a page of shape [layer][kv_head][K | V][run].
template <typename T>
int64_t NaiveByte(const KvShape& s, int layer, int head, int is_v, int offset, int dim) {
  int64_t byte = 0;
  for (int64_t layers = 0; layers < layer; ++layers) byte += 2 * s.kv_heads * NaiveRunBytes<T>(s);
  for (int heads = 0; heads < head; ++heads) byte += 2 * NaiveRunBytes<T>(s);
  if (is_v) byte += NaiveRunBytes<T>(s);
  for (int tokens = 0; tokens < offset; ++tokens) byte += s.head_dim * sizeof(T);
  return byte + dim * static_cast<int64_t>(sizeof(T));
}

const KvShape kSmallShapes[] = {
    // layers, kv_heads, head_dim, num_pages, page_size
    {1, 1, 1, 1, 1},   {1, 1, 8, 2, 1},  {2, 3, 4, 7, 2},    {3, 2, 6, 5, 4},    {5, 1, 16, 9, 8},
    {2, 2, 64, 3, 16}, {1, 8, 2, 4, 32}, {4, 2, 10, 3, 128}, {3, 1, 12, 2, 256}, {1, 5, 3, 33, 16},
};

// Visits every K and V vector of the cache as kernels do. Checks that each element and scale has
// exactly one address, that none lies outside the allocations, and that only padding of runs is
// unused.
template <typename T, typename MakeView>
void ExpectBijection(const KvCache& cache, const std::vector<LateDevice::Allocation>& slabs,
                     MakeView view_of, int first_page = 0) {
  const KvShape& s = cache.shape();
  const auto page_bytes = static_cast<int64_t>(s.page_bytes());
  const int64_t pages_per_slab =
      slabs.size() == 1 ? s.num_pages : NaivePagesPerSlab(s.page_bytes());
  std::vector<bool> seen((s.num_pages - first_page) * page_bytes, false);
  int64_t num_seen = 0;
  const auto see = [&](int page, int64_t byte, int64_t size) {
    for (int64_t i = page * page_bytes + byte; size > 0; ++i, --size, ++num_seen) {
      ASSERT_FALSE(seen[i]) << "two elements overlap";
      seen[i] = true;
    }
  };
  for (int layer = 0; layer < s.layers; ++layer) {
    const auto view = view_of(layer);
    for (int slot = first_page * s.page_size; slot < s.num_pages * s.page_size; ++slot) {
      const int number = slot / s.page_size, offset = slot % s.page_size;
      const int page = number - first_page;
      const char* slab = slabs[page / pages_per_slab].data;
      for (int head = 0; head < s.kv_heads; ++head) {
        for (int is_v = 0; is_v < 2; ++is_v) {
          const KvRow<T> key = view.Slot(slot, head);
          const KvRow<T> row = is_v ? view.ValueOf(key) : key;
          const int64_t byte = NaiveByte<T>(s, layer, head, is_v, offset, 0);
          const int64_t in_slab = page % pages_per_slab * page_bytes;
          ASSERT_EQ(reinterpret_cast<const char*>(row.data) - slab, in_slab + byte);
          ASSERT_EQ(view.At(number, offset, head).data, view.Slot(slot, head).data);
          see(page, byte, s.head_dim * sizeof(T));
          if constexpr (KvRow<T>::kHasScale) {
            const int64_t run = NaiveByte<T>(s, layer, head, is_v, 0, 0);
            const int64_t scale =
                run + MultipleOf16(int64_t{s.page_size} * s.head_dim) + int64_t{4} * offset;
            ASSERT_EQ(reinterpret_cast<const char*>(row.scale) - slab, in_slab + scale);
            if (offset + 1 < s.page_size) {
              ASSERT_EQ(view.Next(row).scale, row.scale + 1);
            }
            see(page, scale, 4);
          }
        }
      }
    }
  }
  const int64_t rows =
      int64_t{2} * (s.num_pages - first_page) * s.layers * s.kv_heads * s.page_size;
  EXPECT_EQ(num_seen, rows * s.format.row_bytes(s.head_dim));
  if (!s.format.has_scales()) {
    EXPECT_EQ(num_seen, (s.num_pages - first_page) * page_bytes);
  }
}

template <typename T>
class KvCacheTypedTest : public ::testing::Test {};
using ElementTypes = ::testing::Types<float, Half, BFloat16, int8_t, Float8E4M3, Float8E5M2>;
TYPED_TEST_SUITE(KvCacheTypedTest, ElementTypes);

TYPED_TEST(KvCacheTypedTest, PagedSlotsFillTheSlabsExactly) {
  for (KvShape shape : kSmallShapes) {
    shape.format = KvFormat::Of(DTypeOf<TypeParam>::value);
    LateDevice device;
    const auto cache = MakePagedKvCache(device, shape);
    ASSERT_TRUE(cache.ok());
    ASSERT_TRUE((*cache)->EnsurePages(shape.num_pages).ok());
    device.Sync();
    ASSERT_EQ(device.allocations().size(), 2u);  // the slab table, one slab
    EXPECT_EQ(device.allocations()[1].bytes, shape.num_pages * shape.page_bytes());
    Tables tables(device, 1, 1, 1);
    ExpectBijection<TypeParam>(**cache, {device.allocations()[1]}, [&](int layer) {
      return (*cache)->View(layer, tables.tensor).template Paged<TypeParam>();
    });
  }
}

TYPED_TEST(KvCacheTypedTest, ContiguousSlotsFillTheBufferExactly) {
  for (KvShape shape : kSmallShapes) {
    shape.format = KvFormat::Of(DTypeOf<TypeParam>::value);
    shape.num_pages += 1;  // rows begin with number 1
    for (int max_len : {shape.page_size, shape.page_size + 1, 37}) {
      shape.page_size = max_len;
      LateDevice device;
      const auto cache = MakeContiguousKvCache(device, shape);
      ASSERT_TRUE(cache.ok());
      EXPECT_TRUE((*cache)->EnsurePages(shape.num_pages).ok());
      ASSERT_EQ(device.allocations().size(), 1u);
      EXPECT_EQ((*cache)->bytes(), (shape.num_pages - 1) * shape.page_bytes());
      EXPECT_EQ(device.allocations()[0].bytes, (*cache)->bytes());
      Tables tables(device, 1, 1, 1);
      ExpectBijection<TypeParam>(
          **cache, device.allocations(),
          [&](int layer) {
            return (*cache)->View(layer, tables.tensor).template Contiguous<TypeParam>();
          },
          1);
    }
  }
}

// Values that StoreKv writes by slot are found by Attention through table and position.
TEST(KvCacheTest, PagedRowFollowsTheShuffledTable) {
  for (const KvShape& shape : kSmallShapes) {
    LateDevice device;
    const auto cache = MakePagedKvCache(device, shape);
    ASSERT_TRUE((*cache)->EnsurePages(shape.num_pages).ok());
    device.Sync();
    const int pages_per_seq = std::max(1, shape.num_pages / 2);
    Tables tables(device, 2, pages_per_seq, pages_per_seq + 3);
    std::vector<int32_t> ids(2 * pages_per_seq);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i) % shape.num_pages;
    std::shuffle(ids.begin(), ids.end(), std::mt19937(7));
    for (size_t i = 0; i < ids.size(); ++i)
      tables.at(i / pages_per_seq, i % pages_per_seq) = ids[i];
    for (int layer = 0; layer < shape.layers; ++layer) {
      const PagedView<float> view = (*cache)->View(layer, tables.tensor).Paged<float>();
      for (int seq = 0; seq < 2; ++seq) {
        for (int pos = 0; pos < pages_per_seq * shape.page_size; ++pos) {
          const int32_t page = tables.at(seq, pos / shape.page_size);
          const int32_t slot = page * shape.page_size + pos % shape.page_size;
          for (int head = 0; head < shape.kv_heads; ++head) {
            ASSERT_EQ(view.Key(seq, pos, head).data, view.Slot(slot, head).data);
          }
        }
      }
    }
  }
}

TEST(KvCacheTest, ContiguousRowFollowsColumnZero) {
  KvShape shape = {3, 2, 8, 5, 37};
  LateDevice device;
  const auto cache = MakeContiguousKvCache(device, shape);
  Tables tables(device, 3, 1, 4);
  for (int seq = 0; seq < 3; ++seq) tables.at(seq, 0) = 4 - seq;
  const KvView erased = (*cache)->View(2, tables.tensor);
  EXPECT_EQ(erased.kind, KvView::Kind::kContiguous);
  EXPECT_EQ(erased.kv_heads, 2);
  const ContiguousView<float> view = erased.Contiguous<float>();
  for (int seq = 0; seq < 3; ++seq) {
    for (int pos = 0; pos < 37; ++pos) {
      EXPECT_EQ(view.Key(seq, pos, 1).data, view.Slot((4 - seq) * 37 + pos, 1).data);
    }
  }
}

TEST(KvCacheTest, ContiguousStorageDoesNotShrink) {
  LateDevice device;
  const auto cache = MakeContiguousKvCache(device, {3, 2, 8, 5, 37});
  const size_t bytes = (*cache)->bytes();
  (*cache)->ShrinkTo(1);
  EXPECT_EQ((*cache)->bytes(), bytes);
}

TEST(KvCacheTest, NoMemoryIsAStatus) {
  LateDevice device(100);
  const KvShape shape = {2, 2, 8, 4, 16};
  EXPECT_EQ(MakePagedKvCache(device, shape).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(MakeContiguousKvCache(device, shape).status().code(), StatusCode::kResourceExhausted);
}

TEST(KvCacheTest, PagedTakesPowersOfTwoUpTo256) {
  LateDevice device;
  for (int page_size = -1; page_size <= 600; ++page_size) {
    const bool valid = page_size == 1 || page_size == 2 || page_size == 4 || page_size == 8 ||
                       page_size == 16 || page_size == 32 || page_size == 64 || page_size == 128 ||
                       page_size == 256;
    const auto cache = MakePagedKvCache(device, {1, 1, 2, 2, page_size});
    ASSERT_EQ(cache.ok(), valid) << page_size;
    if (!valid) {
      EXPECT_EQ(cache.status().code(), StatusCode::kInvalidArgument);
    }
  }
}

TEST(KvCacheTest, ShapesThatCannotBeCountedAreRejected) {
  constexpr int kMax = std::numeric_limits<int>::max();
  const KvShape bad[] = {
      {0, 1, 1, 1, 1},
      {1, 0, 1, 1, 1},
      {1, 1, 0, 1, 1},
      {1, 1, 1, 0, 1},
      {1, 1, 1, -1, 1},
      {kMax, kMax, kMax, kMax, 1},
      {kMax, kMax, 1, 1, 1},  // 2^65 bytes
      {1, 1, 1, kMax, 2},     // more slots than an int32
      {1, 1, 1, kMax / 256 + 1, 256},
  };
  LateDevice device;
  for (const KvShape& shape : bad) {
    EXPECT_EQ(MakePagedKvCache(device, shape).status().code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(MakeContiguousKvCache(device, shape).status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_TRUE(device.allocations().empty());
  EXPECT_EQ(MakeContiguousKvCache(device, {1, 1, 1, 1, 0}).status().code(),
            StatusCode::kInvalidArgument);
}

TEST(KvCacheTest, ShapeCountsBytes) {
  const KvShape qwen3_4b = {36, 8, 128, 513, 16, KvFormat::Of(DType::kF16)};
  EXPECT_EQ(qwen3_4b.token_bytes(), 147456u);
  EXPECT_EQ(qwen3_4b.page_bytes(), 2359296u);
  EXPECT_EQ(512 * qwen3_4b.page_bytes(), 1152 * kMegabyte);
  KvShape narrow = qwen3_4b;
  narrow.format = KvFormat::Of(DType::kF8E4M3);
  EXPECT_EQ(2 * narrow.page_bytes(), qwen3_4b.page_bytes());
  narrow.format = KvFormat::Of(DType::kI8);
  EXPECT_EQ(256 * narrow.page_bytes(), 132 * qwen3_4b.page_bytes()) << "132 bytes for 256";
}

TEST(KvFormatTest, NamesAndRowsOfTheTable) {
  for (const KvFormat::Entry& entry : KvFormat::kTable) {
    const KvFormat format = KvFormat::Of(entry.element_type);
    EXPECT_EQ(format, KvFormat{entry.kind});
    EXPECT_EQ(KvFormat::FromName(format.name()), format);
    EXPECT_EQ(format.row_bytes(7), 7 * static_cast<int64_t>(DTypeBytes(entry.element_type)) +
                                       (entry.has_scales ? 4 : 0));
  }
  EXPECT_EQ(KvFormat::FromName("auto"), std::nullopt);
  EXPECT_EQ(KvFormat::FromName("int4"), std::nullopt);
  EXPECT_EQ(KvFormat::Find(DType::kI64), std::nullopt);
  EXPECT_EXIT(KvFormat::Of(DType::kI32), ExitedWithCode(1), "cannot hold I32");
}

TEST(KvFormatTest, PagesAreRunsOfKeysAndValues) {
  for (const int page_size : {1, 16, 256}) {
    KvView view;
    view.format = KvFormat::Of(DType::kBF16);
    view.kv_heads = 2;
    view.SetPages(3, 6, page_size, 1);
    EXPECT_TRUE(view.HasRuns());
    EXPECT_EQ(view.runs_per_page(), 3 * 2 * 2);
    EXPECT_EQ(view.run_bytes(), page_size * 6 * 2);
    EXPECT_EQ(view.row_width(), 12);
    EXPECT_FALSE(view.IsComplete()) << "without storage";
    // For each token, keys of all heads, then their values, as other programs store them: no runs
    // to copy.
    view.s.head_stride = 6;
    EXPECT_FALSE(view.HasRuns());
  }
}

TEST(KvCacheDeathTest, ContractsAreChecked) {
  LateDevice device;
  const auto cache = MakePagedKvCache(device, {2, 1, 4, 3, 4});
  Tables tables(device, 1, 1, 1);
  EXPECT_EXIT((*cache)->View(2, tables.tensor), ExitedWithCode(1), "layer");
  EXPECT_EXIT((void)(*cache)->EnsurePages(4), ExitedWithCode(1), "more pages");
  Tensor on_host = tables.tensor;
  on_host.device = Device{};
  EXPECT_EXIT((*cache)->View(0, on_host), ExitedWithCode(1), "another device");
  Tensor floats = tables.tensor;
  floats.dtype = DType::kF32;
  EXPECT_EXIT((*cache)->View(0, floats), ExitedWithCode(1), "FP32");
}

}  // namespace
}  // namespace kuiper
