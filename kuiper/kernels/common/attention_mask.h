// Which keys a query sees: AttnOptions as the attention kernels of all backends read it. Host and
// device.
#pragma once

#include "kuiper/base/host_device.h"

namespace kuiper {

// Positions [begin, end), of a sequence or from the start of a tile.
struct KeyRange {
  int begin, end;
  KU_HOST_DEVICE bool empty() const { return begin >= end; }
};

// The keys that the query at `pos` sees in a sequence of `len` tokens: never none. Neither end
// falls when `pos` rises. `window` in tokens; 0: no limit.
KU_HOST_DEVICE KeyRange SeenKeys(bool causal, int window, int pos, int len) {
  KeyRange keys{0, causal ? pos + 1 : len};
  if (window > 0) {
    if (pos - window + 1 > 0) keys.begin = pos - window + 1;
    if (window < keys.end - pos) keys.end = pos + window;
  }
  return keys;
}

}  // namespace kuiper
