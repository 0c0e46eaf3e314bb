#include "kuiper/kv/swap_space.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kuiper/base/check.h"
#include "kuiper/base/clock.h"

namespace kuiper {
namespace {

constexpr size_t kMaxSlabBytes = size_t{256} << 20;

}  // namespace

StatusOr<std::unique_ptr<SwapSpace>> SwapSpace::Create(ComputeDevice& device, const KvCache& kv,
                                                       int num_pages) {
  std::unique_ptr<SwapSpace> space(new SwapSpace(device, kv));
  const size_t page_bytes = kv.shape().page_bytes();
  space->pages_per_slab_ = static_cast<int>(std::max<size_t>(1, kMaxSlabBytes / page_bytes));
  for (int first = 0; first < num_pages; first += space->pages_per_slab_) {
    const int pages = std::min(space->pages_per_slab_, num_pages - first);
    StatusOr<Buffer> slab = device.AllocatePinned(pages * page_bytes);
    if (!slab.ok()) {
      return Status(
          slab.status().code(),
          "swap space: cannot allocate " + std::to_string((pages * page_bytes) >> 20) +
              " MB of host memory after " + std::to_string(space->bytes() >> 20) +
              " MB: " + slab.status().message(Param),
          "lower " + Param("swap_space") + ", or use " + Param("preemption") + " recompute");
    }
    space->slabs_.push_back(std::move(slab).value());
  }
  return space;
}

// Waits, since a copy may still be running.
SwapSpace::~SwapSpace() {
  device_.Sync();
}

Tensor SwapSpace::HostPage(int32_t page) const {
  KU_CHECK(page >= 1);
  const size_t bytes = kv_.shape().page_bytes();
  const Buffer& slab = slabs_.at((page - 1) / pages_per_slab_);
  return slab.As(DType::kU8, {static_cast<int64_t>(bytes)}, (page - 1) % pages_per_slab_ * bytes);
}

void SwapSpace::Run(std::span<const PageMove> moves) {
  for (const PageMove& move : moves) {
    const Tensor page = kv_.Page(move.device_page);
    const Tensor host = HostPage(move.host_page);
    if (move.to_host) {
      device_.Download(host, page);
    } else {
      device_.Upload(page, host);
    }
  }
}

double SwapSpace::MeasurePageMs() {
  const PageMove round_trip[] = {{0, 1, true}, {0, 1, false}};
  double best = 0;
  for (int i = 0; i < 3; ++i) {  // the first one touches the memory
    const Clock::time_point begin = Clock::now();
    Run(round_trip);
    device_.Sync();
    const double ms = MillisecondsSince(begin);
    best = i == 0 ? ms : std::min(best, ms);
  }
  return best / 2;
}

size_t SwapSpace::bytes() const {
  size_t total = 0;
  for (const Buffer& slab : slabs_) total += slab.bytes();
  return total;
}

}  // namespace kuiper
