// The pictures of live requests and their encoder output. EncoderCache decides which of these rows
// are in memory; the runner puts them into prompts in place of embeddings. The same picture of
// several requests is stored and encoded once. Independent of sequences, steps and pages.
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
#include "kuiper/engine/encoder_cache.h"
#include "kuiper/engine/picture_prompt.h"
#include "kuiper/io/image/vision_input.h"
#include "kuiper/model/vision_encoder.h"
#include "kuiper/ops/ops.h"

namespace kuiper {

// The error if a model that accepts no pictures gets one.
Status NoVision();

class PictureStore {
 public:
  // Keeps at most max_rows rows. `ops` and `encoder` must outlive the store; the encoder's memory
  // must be reserved.
  PictureStore(Ops& ops, VisionEncoder& encoder, const VisionTokens& tokens, int64_t max_rows)
      : ops_(ops),
        encoder_(encoder),
        tokens_(tokens),
        cache_(max_rows),
        encoding_(ops.device().MakeTimer()) {}

  // Bytes of a cached row, for the memory plan.
  static size_t RowBytes(const VisionEncoderConfig& config, DType type) {
    return DTypeBytes(type) * (1 + config.num_deepstack()) * config.out_hidden;
  }

  // Takes the pictures of a prompt and keeps them until Drop, as their rows may have to be computed
  // again. kInvalidArgument for values that do not fit this encoder, or pads that do not
  // match. kInput for a frame that is too large. kResourceExhausted for more tokens than the store
  // can hold.
  StatusOr<PromptPictures> Place(std::span<const int32_t> prompt,
                                 std::vector<VisionInput> pictures);
  void Drop(std::span<const int64_t> sources);

  // Called between the layers of the encoder with the share of the source that is done. Returning
  // false stops its encoding. Must not call Place or Drop.
  using MayContinue = std::function<bool(int64_t source, double done)>;
  // Computes the rows of all sources that are held. Call before launching the step that reads them.
  // Returns the sources that still have no rows, with the reason: no memory, or `go_on` returned
  // false; it may be empty. The next call tries again.
  std::map<int64_t, Status> Prepare(const MayContinue& go_on = {});
  // Returns the rows [tokens, (1 + K) * hidden], see RowOverride; empty if there are none.
  Tensor Rows(int64_t source) const;
  // Returns the rows of a picture without a request, as FP32 values on the host.
  StatusOr<std::vector<float>> Encode(VisionInput picture);

  EncoderCache& cache() { return cache_; }
  // Pictures encoded since the store was made, and the time this took.
  int64_t num_encoded() const { return num_encoded_; }
  double encode_ms() const { return encoding_->Milliseconds(); }

 private:
  // Digest and grid of a picture.
  using Identity = std::tuple<std::array<uint8_t, 16>, int, int, int>;
  static Identity IdentityOf(const VisionInput& picture) {
    return {picture.digest, picture.grid.t, picture.grid.h, picture.grid.w};
  }
  struct Picture {
    Identity identity = {};
    std::string name = {};            // for messages
    std::vector<float> patches = {};  // pixels; empty if no request has the picture
    PatchGrid grid = {};
    int num_users = 0;  // number of requests
    Buffer rows = {};
  };
  // Check that the values are a picture for this encoder, that its frames are small enough, and
  // that all pictures together are.
  Status CheckPicture(const VisionInput& picture) const;
  Status CheckFrame(const VisionInput& picture) const;
  Status CheckSizes(std::span<const VisionInput> pictures) const;
  // Moves the pixels out of the picture.
  int64_t SourceOf(VisionInput& picture);
  Status EncodeRows(Picture& picture, const VisionProgress& go_on = {});
  Tensor RowsOf(const Picture& picture) const;
  void ForgetIfUnused(int64_t source);

  Ops& ops_;
  VisionEncoder& encoder_;
  VisionTokens tokens_;
  EncoderCache cache_;
  int64_t next_source_ = 1;
  int64_t num_encoded_ = 0;
  std::unique_ptr<WorkTimer> encoding_;
  std::map<Identity, int64_t> sources_;
  std::map<int64_t, Picture> pictures_;
};

}  // namespace kuiper
