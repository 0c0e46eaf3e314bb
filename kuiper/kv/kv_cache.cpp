#include "kuiper/kv/kv_cache.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/base/buffer.h"
#include "kuiper/base/check.h"

namespace kuiper {
namespace {

constexpr size_t kMaxSlabBytes = size_t{256} << 20;
constexpr int kMaxPageSize = 256;

// Rejects shapes whose sizes overflow the integers that hold them, so that all later arithmetic is
// exact.
Status CheckShape(const KvShape& shape) {
  if (shape.layers < 1 || shape.kv_heads < 1 || shape.head_dim < 1 || shape.page_size < 1 ||
      shape.num_pages < 1) {
    return {StatusCode::kInvalidArgument, "KV cache: every dimension must be at least 1"};
  }
  // A slot (page * page_size + offset) is an int32 in the batch arrays.
  const int64_t slots = static_cast<int64_t>(shape.num_pages) * shape.page_size;
  // Offsets are int64, and a pointer difference in bytes must fit as well. This is an upper bound
  // of the bytes of one key and value, in pages of a single token.
  int64_t bytes = 2 * (shape.format.row_bytes(shape.head_dim) + shape.format.max_padding_bytes());
  bool overflow = slots > std::numeric_limits<int32_t>::max();
  for (int64_t factor : {int64_t{shape.layers}, int64_t{shape.kv_heads}, slots}) {
    overflow = overflow || __builtin_mul_overflow(bytes, factor, &bytes);
  }
  if (overflow) {
    return {StatusCode::kInvalidArgument,
            "KV cache: " + std::to_string(shape.num_pages) + " pages of " +
                std::to_string(shape.page_size) + " tokens are more than can be addressed",
            "use fewer pages or a shorter context"};
  }
  return OkStatus();
}

// Fills the fields that the views of both layouts share.
KvView ViewOf(const KvShape& shape, KvView::Kind kind, int layer, const Tensor& block_tables,
              Device device) {
  KU_CHECK(layer >= 0 && layer < shape.layers);
  KU_CHECK(block_tables.rank == 2 && block_tables.shape[1] >= 1 && block_tables.stride[1] == 1,
           "block tables are [S, max_pages]");
  KU_CHECK(block_tables.device == device, "block tables are on another device");
  KU_CHECK(block_tables.stride[0] <= std::numeric_limits<int32_t>::max());
  KvView view;
  view.kind = kind;
  view.format = shape.format;
  view.kv_heads = shape.kv_heads;
  view.tables = block_tables.ptr<const int32_t>();
  view.table_stride = static_cast<int32_t>(block_tables.stride[0]);
  view.SetPages(shape.layers, shape.head_dim, shape.page_size, layer);
  return view;
}

class PagedKvCache final : public KvCache {
 public:
  static StatusOr<std::unique_ptr<KvCache>> Make(ComputeDevice& device, const KvShape& shape) {
    std::unique_ptr<PagedKvCache> cache(new PagedKvCache(device, shape));
    KU_RETURN_IF_ERROR(cache->MakeSlabTable());
    KU_RETURN_IF_ERROR(cache->EnsurePages(1));
    return std::unique_ptr<KvCache>(std::move(cache));
  }

  // An upload may still be reading host_slabs_.
  ~PagedKvCache() override { device_.Sync(); }

  const KvShape& shape() const override { return shape_; }
  size_t bytes() const override { return bytes_; }

  KvView View(int layer, Tensor block_tables) const override {
    KvView view = ViewOf(shape_, KvView::Kind::kPaged, layer, block_tables, device_.id());
    view.slabs = static_cast<void* const*>(device_slabs_.data());
    view.slab_shift = slab_shift_;
    view.page_shift = std::countr_zero(static_cast<uint32_t>(shape_.page_size));
    return view;
  }

  Tensor Page(int32_t page) const override {
    const size_t in_slab = page & ((1 << slab_shift_) - 1);
    return slabs_.at(page >> slab_shift_)
        .As(DType::kU8, {static_cast<int64_t>(shape_.page_bytes())}, in_slab * shape_.page_bytes());
  }

  Status EnsurePages(int num_pages) override {
    KU_CHECK(num_pages <= shape_.num_pages, "more pages than the cache was made for");
    const size_t old_count = slabs_.size();
    Status status;
    while (status.ok() && NumUsablePages() < num_pages) status = AddSlab();
    if (slabs_.size() > old_count) UploadSlabs(old_count, slabs_.size());
    return status;
  }

  void ShrinkTo(int num_pages) override {
    const size_t old_count = slabs_.size();
    const size_t kept = (static_cast<size_t>(std::max(num_pages, 1) - 1) >> slab_shift_) + 1;
    if (kept >= old_count) return;
    device_.Sync();  // steps in flight read the slabs, and uploads host_slabs_
    for (; slabs_.size() > kept; slabs_.pop_back()) bytes_ -= slabs_.back().bytes();
    std::fill(host_slabs_.begin() + kept, host_slabs_.begin() + old_count, nullptr);
    UploadSlabs(kept, old_count);
    device_.Sync();
  }

 private:
  PagedKvCache(ComputeDevice& device, const KvShape& shape) : device_(device), shape_(shape) {
    const size_t pages = std::max<size_t>(1, kMaxSlabBytes / shape.page_bytes());
    slab_shift_ = static_cast<int>(std::bit_width(pages)) - 1;
    const int64_t last_page = shape.num_pages - 1;
    host_slabs_.resize((last_page >> slab_shift_) + 1);
  }

  int NumUsablePages() const {
    const int64_t pages = static_cast<int64_t>(slabs_.size()) << slab_shift_;
    return static_cast<int>(std::min<int64_t>(pages, shape_.num_pages));
  }

  // The table that kernels read has an entry for every slab that can ever exist. So its address,
  // which captured graphs hold, survives growth. Entries of slabs not yet allocated are null.
  Status MakeSlabTable() {
    KU_ASSIGN_OR_RETURN(device_slabs_, device_.Allocate(host_slabs_.size() * sizeof(void*)));
    UploadSlabs(0, host_slabs_.size());
    // AddSlab writes to the source of this upload. Until the next Sync it writes no entry twice.
    device_.Sync();
    return OkStatus();
  }

  Status AddSlab() {
    const int64_t first_page = static_cast<int64_t>(slabs_.size()) << slab_shift_;
    const int64_t pages =
        std::min<int64_t>(int64_t{1} << slab_shift_, shape_.num_pages - first_page);
    const size_t bytes = pages * shape_.page_bytes();
    // A few such pages fill a huge page, so little memory is committed before tokens need it.
    constexpr size_t kLargePage = size_t{256} << 10;
    StatusOr<Buffer> slab =
        shape_.page_bytes() >= kLargePage ? device_.AllocateWhole(bytes) : device_.Allocate(bytes);
    if (!slab.ok()) {
      const Status cause = slab.status();
      return {cause.code(),
              "KV cache: cannot grow from " + std::to_string(bytes_ >> 20) + " MB by " +
                  std::to_string(bytes >> 20) + " MB: " + cause.message(Param),
              cause.hint(Param)};
    }
    host_slabs_[slabs_.size()] = slab->data();
    slabs_.push_back(std::move(slab).value());
    bytes_ += bytes;
    return OkStatus();
  }

  void UploadSlabs(size_t begin, size_t end) {
    static_assert(sizeof(void*) == sizeof(int64_t));
    const int64_t count = static_cast<int64_t>(end - begin);
    device_.Upload(device_slabs_.As(DType::kI64, {count}, begin * sizeof(void*)),
                   Tensor::Dense(host_slabs_.data() + begin, DType::kI64, {count}));
  }

  ComputeDevice& device_;
  KvShape shape_;
  int slab_shift_ = 0;  // pages per slab == 1 << slab_shift_
  size_t bytes_ = 0;
  std::vector<Buffer> slabs_;
  std::vector<void*> host_slabs_;  // never resized: uploads read it until the next Sync
  Buffer device_slabs_;            // [host_slabs_.size()] pointers
};

class ContiguousKvCache final : public KvCache {
 public:
  ContiguousKvCache(Device device, const KvShape& shape, Buffer buffer)
      : device_(device), shape_(shape), buffer_(std::move(buffer)) {}

  const KvShape& shape() const override { return shape_; }
  size_t bytes() const override { return buffer_.bytes(); }

  KvView View(int layer, Tensor block_tables) const override {
    KvView view = ViewOf(shape_, KvView::Kind::kContiguous, layer, block_tables, device_);
    view.base = buffer_.data();
    view.max_len = shape_.page_size;
    return view;
  }

  Tensor Page(int32_t row) const override {
    return buffer_.As(DType::kU8, {static_cast<int64_t>(shape_.page_bytes())},
                      (row - 1) * shape_.page_bytes());
  }

  Status EnsurePages(int num_pages) override {
    KU_CHECK(num_pages <= shape_.num_pages, "more rows than the cache was made for");
    return OkStatus();
  }
  void ShrinkTo(int) override {}

 private:
  Device device_;
  KvShape shape_;
  Buffer buffer_;
};

}  // namespace

StatusOr<std::unique_ptr<KvCache>> MakePagedKvCache(ComputeDevice& device, const KvShape& shape) {
  if (shape.page_size < 1 || shape.page_size > kMaxPageSize ||
      !std::has_single_bit(static_cast<uint32_t>(shape.page_size))) {
    return Status(StatusCode::kInvalidArgument,
                  "page size " + std::to_string(shape.page_size) +
                      " is not a power of two from 1 to " + std::to_string(kMaxPageSize),
                  "16 is a good choice");
  }
  KU_RETURN_IF_ERROR(CheckShape(shape));
  return PagedKvCache::Make(device, shape);
}

StatusOr<std::unique_ptr<KvCache>> MakeContiguousKvCache(ComputeDevice& device,
                                                         const KvShape& shape) {
  KU_RETURN_IF_ERROR(CheckShape(shape));
  KU_CHECK(shape.num_pages >= 2, "at least one row");
  StatusOr<Buffer> buffer = device.Allocate((shape.num_pages - 1) * shape.page_bytes());
  if (!buffer.ok()) return buffer.status();
  return std::unique_ptr<KvCache>(
      std::make_unique<ContiguousKvCache>(device.id(), shape, std::move(buffer).value()));
}

}  // namespace kuiper
