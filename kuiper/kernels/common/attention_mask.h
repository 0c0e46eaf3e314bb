// Which keys a query attends to: AttnOptions for the attention kernels of all backends. For host
// and device.
#pragma once

#include "kuiper/base/host_device.h"

namespace kuiper {

// Positions [begin, end) of a sequence, or relative to the start of a tile.
struct KeyRange {
  int begin, end;
  KU_HOST_DEVICE bool empty() const { return begin >= end; }
};

// Returns the keys that the query at `pos` attends to in a sequence of `len` tokens; never empty.
// Neither end decreases when `pos` increases. `window` in tokens; 0: no limit.
KU_HOST_DEVICE KeyRange SeenKeys(bool causal, int window, int pos, int len) {
  KeyRange keys{0, causal ? pos + 1 : len};
  if (window > 0) {
    if (pos - window + 1 > 0) keys.begin = pos - window + 1;
    if (window < keys.end - pos) keys.end = pos + window;
  }
  return keys;
}

}  // namespace kuiper
