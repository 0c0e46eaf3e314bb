// Compares CopyPages with a byte-by-byte copy on the host: tokens beyond the copied ones and other
// pages must not change.
#include <random>

#include "kv_rows.h"
#include "ops_test_util.h"

namespace kuiper::test {
namespace {

struct Layout {
  bool paged = true;
  int page_size = 16;  // contiguous: max_len
  int layers = 3;
  int kv_heads = 2;
  int head_dim = 8;
  int runs() const { return layers * kv_heads * 2; }
};

struct Copy {
  int from, to, tokens;
};

constexpr int kNumPages = 11, kSlabShift = 1;  // paged: six slabs

// Storage of both kinds with random bytes, as [page][run][bytes of a run] on the host.
class Storage {
 public:
  Storage(Ops& ops, DType dtype, const Layout& layout)
      : layout_(layout), run_{dtype, layout.head_dim, layout.page_size} {
    const int slab_pages = layout.paged ? 1 << kSlabShift : kNumPages;
    std::vector<int64_t> addresses;
    for (int first = 0; first < kNumPages; first += slab_pages) {
      const int pages = std::min(slab_pages, kNumPages - first);
      std::vector<char> bytes(size_t{1} * pages * PageBytes());
      std::mt19937 random(static_cast<uint32_t>(first));
      for (char& byte : bytes) byte = static_cast<char>(random());
      expected_.insert(expected_.end(), bytes.begin(), bytes.end());
      slabs_.emplace_back(ops, DType::kU8, pages, PageBytes());
      slabs_.back().SetBytes(bytes);
      addresses.push_back(reinterpret_cast<intptr_t>(slabs_.back().tensor().data));
    }
    device_slabs_ = std::make_unique<Array<int64_t>>(ops, addresses);
    view_.kind = layout.paged ? KvView::Kind::kPaged : KvView::Kind::kContiguous;
    view_.format = KvFormat::Of(dtype);
    view_.kv_heads = layout.kv_heads;
    view_.slabs = static_cast<void* const*>(device_slabs_->tensor().data);
    view_.base = slabs_[0].tensor().data;
    view_.slab_shift = kSlabShift;
    while (layout.paged && (1 << view_.page_shift) < layout.page_size) ++view_.page_shift;
    view_.max_len = layout.page_size;
    view_.SetPages(layout.layers, layout.head_dim, layout.page_size, /*layer=*/1);
  }

  const KvView& view() const { return view_; }

  void ExpectAfter(const std::vector<Copy>& copies) {
    for (const Copy& c : copies) {
      for (int run = 0; run < layout_.runs(); ++run) {
        for (int token = 0; token < c.tokens; ++token) {
          CopyExpected(c, run, run_.Row(token), run_.RowBytes());
          if (run_.cache == DType::kI8) CopyExpected(c, run, run_.Scale(token), 4);
        }
      }
    }
    std::vector<char> actual;
    for (const Matrix& slab : slabs_) {
      const std::vector<char> bytes = slab.Bytes();
      actual.insert(actual.end(), bytes.begin(), bytes.end());
    }
    ASSERT_EQ(actual.size(), expected_.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_EQ(actual[i], expected_[i]) << "page " << i / static_cast<size_t>(PageBytes())
                                         << ", byte " << i % static_cast<size_t>(PageBytes());
    }
  }

 private:
  int PageBytes() const { return layout_.runs() * static_cast<int>(run_.Bytes()); }
  void CopyExpected(const Copy& c, int run, int64_t begin, int64_t size) {
    const int64_t in_page = run * run_.Bytes() + begin;
    std::copy_n(expected_.begin() + PageBegin(c.from) + in_page, size,
                expected_.begin() + PageBegin(c.to) + in_page);
  }
  // Rows are numbered from 1.
  int64_t PageBegin(int page) const {
    return int64_t{1} * (layout_.paged ? page : page - 1) * PageBytes();
  }

  Layout layout_;
  NaiveRun run_;
  std::vector<Matrix> slabs_;
  std::vector<char> expected_;
  std::unique_ptr<Array<int64_t>> device_slabs_;
  KvView view_;
};

class PageCopyTest : public TypedOpsTest {
 protected:
  void Check(const Layout& layout, const std::vector<Copy>& copies) {
    Storage storage(*ops_, dtype(), layout);
    std::vector<int32_t> rows;
    for (const Copy& c : copies) rows.insert(rows.end(), {c.from, c.to, c.tokens});
    const Array<int32_t> device_copies(*ops_, rows, static_cast<int>(copies.size()));
    ops_->Run(CopyPagesArgs{.kv = storage.view(), .copies = device_copies.matrix()});
    storage.ExpectAfter(copies);
  }

  const std::unique_ptr<Ops> ops_ = MakeTestOps(device());
};
KU_INSTANTIATE_KV_OPS_TEST(PageCopyTest);

TEST_P(PageCopyTest, CopiesTheFirstTokensOfPagesInSeveralSlabs) {
  for (int page_size : {1, 2, 16, 64}) {
    for (int head_dim : {1, 5, 8, 20}) {
      SCOPED_TRACE("page_size " + std::to_string(page_size) + ", head_dim " +
                   std::to_string(head_dim));
      const Layout layout{.page_size = page_size, .head_dim = head_dim};
      Check(layout, {{1, 10, page_size}});
      Check(layout, {{9, 2, page_size},
                     {9, 4, page_size / 2},  // one page may be copied several times
                     {3, 5, std::max(1, page_size - 1)},
                     {8, 7, 1},
                     {0, 6, 0}});
    }
  }
}

TEST_P(PageCopyTest, CopiesTheFirstTokensOfContiguousRows) {
  for (int max_len : {1, 17, 300}) {
    for (int head_dim : {3, 8}) {
      SCOPED_TRACE("max_len " + std::to_string(max_len) + ", head_dim " + std::to_string(head_dim));
      const Layout layout{.paged = false, .page_size = max_len, .head_dim = head_dim};
      Check(layout, {{1, 2, max_len}, {10, 3, max_len / 2}, {10, 4, 1}});
    }
  }
}

TEST_P(PageCopyTest, NoCopiesIsNoWork) {
  Storage storage(*ops_, dtype(), {});
  ops_->Run(
      CopyPagesArgs{.kv = storage.view(),
                    .copies = Tensor::Dense(nullptr, DType::kI32, {0, 3}, ops_->device().id())});
  storage.ExpectAfter({});
}

TEST_P(PageCopyTest, RunsInOrderWithTheOpsAroundIt) {
  const Layout layout;
  Storage storage(*ops_, dtype(), layout);
  const Array<int32_t> first(*ops_, {1, 2, 16}, 1), second(*ops_, {2, 9, 7}, 1);
  ops_->Run(CopyPagesArgs{.kv = storage.view(), .copies = first.matrix()});
  ops_->Run(CopyPagesArgs{.kv = storage.view(), .copies = second.matrix()});
  storage.ExpectAfter({{1, 2, 16}, {2, 9, 7}});
}

using PageCopyDeathTest = OpsTest;
KU_INSTANTIATE_OPS_TEST(PageCopyDeathTest);

TEST_P(PageCopyDeathTest, WrongArgumentsEndTheProcess) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  const std::unique_ptr<Ops> ops = MakeTestOps(GetParam());
  const Storage storage(*ops, DType::kF32, {});
  const Array<int32_t> pairs(*ops, {1, 2, 3, 4}, 2), longer(*ops, {1, 2, 17}, 1);
  const auto exits = ::testing::ExitedWithCode(1);
  EXPECT_EXIT(ops->Run(CopyPagesArgs{.kv = storage.view(), .copies = pairs.matrix()}), exits,
              "CopyPages: copies is not");
  EXPECT_EXIT(ops->Run(CopyPagesArgs{.kv = storage.view(), .copies = longer.tensor()}), exits,
              "CopyPages: copies is not");
  if (ops->device().id().type == DeviceType::kCPU) {
    EXPECT_EXIT(ops->Run(CopyPagesArgs{.kv = storage.view(), .copies = longer.matrix()}), exits,
                "more tokens than a page");
  }
}

}  // namespace
}  // namespace kuiper::test
