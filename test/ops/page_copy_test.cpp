// CopyPages against a copy element by element on the host: no token beyond the copied ones and no
// other page changes.
#include <cmath>

#include "ops_test_util.h"

namespace kuiper::test {
namespace {

struct Layout {
  bool paged = true;
  int page_size = 16;  // contiguous: max_len
  int layers = 3;
  int kv_heads = 2;
  int head_dim = 8;
  int run() const { return page_size * head_dim; }
  int page_elements() const { return layers * kv_heads * 2 * run(); }
};

struct Copy {
  int from, to, tokens;
};

constexpr int kNumPages = 11, kSlabShift = 1;  // paged: six slabs

// Storage of both kinds with random elements, as [page][page_elements] on the host.
class Storage {
 public:
  Storage(Ops& ops, DType dtype, const Layout& layout) : layout_(layout) {
    const int slab_pages = layout.paged ? 1 << kSlabShift : kNumPages;
    std::vector<int64_t> addresses;
    for (int first = 0; first < kNumPages; first += slab_pages) {
      const int pages = std::min(slab_pages, kNumPages - first);
      const std::vector<float> values =
          Rounded(RandomFloats(size_t{1} * pages * layout.page_elements(), first), dtype);
      expected_.insert(expected_.end(), values.begin(), values.end());
      slabs_.emplace_back(ops, dtype, pages, layout.page_elements(), values);
      addresses.push_back(reinterpret_cast<intptr_t>(slabs_.back().tensor().data));
    }
    device_slabs_ = std::make_unique<Array<int64_t>>(ops, addresses);
    view_.kind = layout.paged ? KvView::Kind::kPaged : KvView::Kind::kContiguous;
    view_.format = KvFormat::Dense(dtype);
    view_.kv_heads = layout.kv_heads;
    view_.slabs = static_cast<void* const*>(device_slabs_->tensor().data);
    view_.base = slabs_[0].tensor().data;
    view_.slab_shift = kSlabShift;
    while (layout.paged && (1 << view_.page_shift) < layout.page_size) ++view_.page_shift;
    view_.max_len = layout.page_size;
    view_.s.page_stride = layout.page_elements();
    view_.s.layer_offset = 2 * layout.kv_heads * layout.run();  // the second layer's
    view_.s.head_stride = 2 * layout.run();
    view_.s.v_offset = layout.run();
    view_.s.token_stride = view_.s.head_dim = layout.head_dim;
  }

  const KvView& view() const { return view_; }

  void ExpectAfter(const std::vector<Copy>& copies) {
    for (const Copy& c : copies) {
      for (int i = 0; i < layout_.page_elements(); ++i) {
        const int token = i % layout_.run() / layout_.head_dim;
        if (token >= c.tokens) continue;
        expected_[IndexOf(c.to) + i] = expected_[IndexOf(c.from) + i];
      }
    }
    std::vector<float> actual;
    for (const Matrix& slab : slabs_) {
      const std::vector<float> values = slab.Get();
      actual.insert(actual.end(), values.begin(), values.end());
    }
    ASSERT_EQ(actual.size(), expected_.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      ASSERT_EQ(actual[i], expected_[i])
          << "page " << i / layout_.page_elements() << ", element " << i % layout_.page_elements();
    }
  }

 private:
  // Of the page's first element; rows are numbered from 1.
  int IndexOf(int page) const {
    return (layout_.paged ? page : page - 1) * layout_.page_elements();
  }

  Layout layout_;
  std::vector<Matrix> slabs_;
  std::vector<float> expected_;
  std::unique_ptr<Array<int64_t>> device_slabs_;
  KvView view_;
};

class PageCopyTest : public TypedOpsTest {
 protected:
  DType dtype() const { return std::get<1>(GetParam()); }

  void Check(const Layout& layout, const std::vector<Copy>& copies) {
    Storage storage(*ops_, dtype(), layout);
    std::vector<int32_t> rows;
    for (const Copy& c : copies) rows.insert(rows.end(), {c.from, c.to, c.tokens});
    const Array<int32_t> device_copies(*ops_, rows, static_cast<int>(copies.size()));
    ops_->Run(CopyPagesArgs{.kv = storage.view(), .copies = device_copies.matrix()});
    storage.ExpectAfter(copies);
  }

  const std::unique_ptr<Ops> ops_ = MakeTestOps(std::get<0>(GetParam()));
};
KU_INSTANTIATE_TYPED_OPS_TEST(PageCopyTest);

TEST_P(PageCopyTest, CopiesTheFirstTokensOfPagesInSeveralSlabs) {
  for (int page_size : {1, 16, 64}) {
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
