// Host memory for the pages of preempted sequences. This is only the storage; a separate BlockPool
// records which sequence owns which host page.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kuiper/base/buffer.h"
#include "kuiper/base/status.h"
#include "kuiper/kv/kv_cache.h"

namespace kuiper {

// One page to copy between the device and the host.
struct PageMove {
  int32_t device_page = 0;
  int32_t host_page = 0;
  bool to_host = true;
};

class SwapSpace {
 public:
  // Storage for host pages [1, num_pages]. `device` and `kv` must outlive it.
  static StatusOr<std::unique_ptr<SwapSpace>> Create(ComputeDevice& device, const KvCache& kv,
                                                     int num_pages);
  ~SwapSpace();

  // Enqueues the moves in this order, ordered with the ops of the device.
  void Run(std::span<const PageMove> moves);
  // Returns the time to move one page one way, in ms, measured on the null page.
  double MeasurePageMs();
  size_t bytes() const;

 private:
  SwapSpace(ComputeDevice& device, const KvCache& kv) : device_(device), kv_(kv) {}
  Tensor HostPage(int32_t page) const;

  ComputeDevice& device_;
  const KvCache& kv_;
  int pages_per_slab_ = 0;
  std::vector<Buffer> slabs_;
};

}  // namespace kuiper
