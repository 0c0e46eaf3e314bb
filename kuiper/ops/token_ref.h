// A token of a batch: an id, or the row of Sample that produces the id, if the host does not know
// it yet. Batches hold arrays of it on the device, which Embed resolves. Host and device.
#pragma once

#include <cstdint>

#include "kuiper/base/host_device.h"

namespace kuiper {

// Sample's result for a row whose logits are not finite.
constexpr int32_t kNotFiniteToken = -1;

class TokenRef {
 public:
  // Returns the token with this id, which must not be negative.
  static constexpr KU_HOST_DEVICE TokenRef Known(int32_t id) { return TokenRef(id); }
  // Returns the token that Sample last chose for row `row` of its logits.
  static constexpr KU_HOST_DEVICE TokenRef Sampled(int32_t row) { return TokenRef(-1 - row); }

  constexpr TokenRef() = default;
  constexpr KU_HOST_DEVICE bool is_known() const { return bits_ >= 0; }
  constexpr KU_HOST_DEVICE int32_t id() const { return bits_; }        // only if is_known()
  constexpr KU_HOST_DEVICE int32_t row() const { return -1 - bits_; }  // only if not is_known()
  constexpr bool operator==(const TokenRef&) const = default;

 private:
  explicit constexpr KU_HOST_DEVICE TokenRef(int32_t bits) : bits_(bits) {}

  int32_t bits_ = 0;
};
static_assert(sizeof(TokenRef) == sizeof(int32_t), "device arrays of it are I32 tensors");

}  // namespace kuiper
