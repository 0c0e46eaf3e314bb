// The pictures of live requests and what the vision tower made of them: rows in memory, as
// SourceCache decides, that the runner patches into prompts. The same picture of several requests
// is kept and encoded once. It knows no sequences, steps or pages.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "kuiper/base/buffer.h"
#include "kuiper/base/status.h"
#include "kuiper/engine/picture_prompt.h"
#include "kuiper/engine/source_cache.h"
#include "kuiper/io/image/vision_input.h"
#include "kuiper/model/vision_encoder.h"
#include "kuiper/ops/ops.h"

namespace kuiper {

// The error of pictures for a model that takes none.
Status NoVision();

class PictureStore {
 public:
  // Keeps at most max_rows rows. `ops` and `encoder`, whose memory is reserved, must outlive the
  // store.
  PictureStore(Ops& ops, VisionEncoder& encoder, const VisionTokens& tokens, int64_t max_rows)
      : ops_(ops),
        encoder_(encoder),
        tokens_(tokens),
        cache_(max_rows),
        encoding_(ops.device().MakeTimer()) {}

  // Bytes of a cached row, for the memory plan.
  static size_t RowBytes(const VisionTowerConfig& config, DType type) {
    return DTypeBytes(type) * (1 + config.num_deepstack()) * config.out_hidden;
  }

  // Takes the pictures of a prompt. They stay until Drop, as the rows may have to be made again.
  // kInvalidArgument for values that are no picture of this tower, or pads of others; kInput for a
  // frame that is too large; kResourceExhausted for more tokens than the store can ever hold.
  StatusOr<PromptPatches> Place(std::span<const int32_t> prompt, std::vector<VisionInput> pictures);
  void Drop(std::span<const int64_t> sources);

  // Asked of a source between the layers of the tower, with the share that is done. False: it is
  // not made. Places and drops nothing.
  using GoOn = std::function<bool(int64_t source, double done)>;
  // Makes the rows of all sources that somebody holds, before the step that reads them is launched.
  // Sources that have none then, and why: there is no memory, or `go_on`, which may be empty, said
  // so. The next call tries again.
  std::map<int64_t, Status> Prepare(const GoOn& go_on = {});
  // [tokens, (1 + K) * hidden], see RowPatch; empty: there are none.
  Tensor Rows(int64_t source) const;
  // The same as FP32 values on the host, of a picture of no request.
  StatusOr<std::vector<float>> Encode(VisionInput picture);

  SourceCache& cache() { return cache_; }
  // Since the store was made: pictures that became rows, and how long that took.
  int64_t num_encoded() const { return num_encoded_; }
  double encode_ms() const { return encoding_->Milliseconds(); }

 private:
  // Digest and grid.
  using Identity = std::tuple<std::array<uint8_t, 16>, int, int, int>;
  static Identity IdentityOf(const VisionInput& picture) {
    return {picture.digest, picture.grid.t, picture.grid.h, picture.grid.w};
  }
  struct Picture {
    Identity identity = {};
    std::string name = {};            // in messages
    std::vector<float> patches = {};  // empty where no request has it
    PatchGrid grid = {};
    int num_users = 0;  // requests
    Buffer rows = {};
  };
  // Whether the values are those of a picture of this tower; whether its frames, and all of them
  // together, are small enough.
  Status CheckPicture(const VisionInput& picture) const;
  Status CheckFrame(const VisionInput& picture) const;
  Status CheckSizes(std::span<const VisionInput> pictures) const;
  // Takes the pixels.
  int64_t SourceOf(VisionInput& picture);
  Status EncodeRows(Picture& picture, const VisionProgress& go_on = {});
  Tensor RowsOf(const Picture& picture) const;
  void ForgetIfUnused(int64_t source);

  Ops& ops_;
  VisionEncoder& encoder_;
  VisionTokens tokens_;
  SourceCache cache_;
  int64_t next_source_ = 1;
  int64_t num_encoded_ = 0;
  std::unique_ptr<WorkTimer> encoding_;
  std::map<Identity, int64_t> sources_;
  std::map<int64_t, Picture> pictures_;
};

}  // namespace kuiper
