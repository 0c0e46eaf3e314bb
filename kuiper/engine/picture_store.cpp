#include "kuiper/engine/picture_store.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <utility>

#include "kuiper/base/check.h"
#include "kuiper/base/text.h"
#include "kuiper/model/convert.h"

namespace kuiper {
namespace {

std::string NameOf(const VisionInput& picture) {
  return picture.source.empty() ? "a picture" : picture.source;
}

}  // namespace

Status NoVision() {
  return Status(StatusCode::kInvalidArgument,
                "images are not accepted: the model has no vision encoder, or " +
                    Param("image_max_tokens") + " is 0");
}

Status PictureStore::CheckPicture(const VisionInput& picture) const {
  const auto bad = [&](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, NameOf(picture) + " " + what);
  };
  const VisionEncoderConfig& tower = encoder_.config();
  const PatchGrid& grid = picture.grid;
  constexpr int kMaxSide = 1 << 20;  // far above any real size
  const bool is_grid = grid.t > 0 && grid.h > 0 && grid.w > 0 && grid.t <= kMaxSide &&
                       grid.h <= kMaxSide && grid.w <= kMaxSide && grid.h % tower.merge == 0 &&
                       grid.w % tower.merge == 0;
  if (!is_grid || picture.merge_size != tower.merge) {
    return bad("has a grid of " + std::to_string(grid.t) + " x " + std::to_string(grid.h) + " x " +
               std::to_string(grid.w) + " patches, which the model cannot merge");
  }
  const int64_t frame = int64_t{grid.h} * grid.w;
  if (picture.patches.size() / tower.patch_values() != static_cast<size_t>(frame * grid.t) ||
      picture.patches.size() % tower.patch_values() != 0) {
    return bad("has " + std::to_string(picture.patches.size()) + " values for " +
               std::to_string(frame * grid.t) + " patches of " +
               std::to_string(tower.patch_values()));
  }
  const size_t num_frames = picture.seconds.empty() ? 1 : picture.seconds.size();
  if (num_frames != static_cast<size_t>(grid.t)) {
    return bad("has " + std::to_string(grid.t) + " frames and the times of " +
               std::to_string(num_frames));
  }
  return OkStatus();
}

Status PictureStore::CheckFrame(const VisionInput& picture) const {
  const int frame = FrameSizeOf(picture).tokens();
  const int most = encoder_.max_patches() / encoder_.config().merge_unit();
  if (frame <= most) return OkStatus();
  return Status(StatusCode::kInput,
                NameOf(picture) + " takes " + Counted(frame, "token") + "; a frame may take " +
                    std::to_string(most),
                IsVideo(picture)
                    ? Param("image_max_tokens") + " " + std::to_string(most) + " makes it smaller"
                    : "lower " + Param("max_pixels") + " or raise " + Param("image_max_tokens"));
}

Status PictureStore::CheckSizes(std::span<const VisionInput> pictures) const {
  std::set<Identity> distinct;
  int64_t tokens = 0;
  for (const VisionInput& picture : pictures) {
    KU_RETURN_IF_ERROR(CheckFrame(picture));
    if (distinct.insert(IdentityOf(picture)).second) tokens += picture.num_tokens();
  }
  if (tokens <= cache_.max_rows()) return OkStatus();
  return Status(StatusCode::kResourceExhausted,
                "the pictures take " + Counted(tokens, "token") + "; " +
                    std::to_string(cache_.max_rows()) + " are kept at a time",
                "raise " + Param("vision_cache_tokens"));
}

int64_t PictureStore::SourceOf(VisionInput& input) {
  const auto [it, is_new] = sources_.try_emplace(IdentityOf(input), next_source_);
  if (is_new) {
    cache_.Add(next_source_, input.num_tokens());
    pictures_[next_source_++] = {.identity = it->first, .name = NameOf(input), .grid = input.grid};
  }
  Picture& picture = pictures_.at(it->second);
  if (picture.patches.empty()) picture.patches = std::move(input.patches);
  return it->second;
}

StatusOr<PromptPictures> PictureStore::Place(std::span<const int32_t> prompt,
                                             std::vector<VisionInput> pictures) {
  for (const VisionInput& picture : pictures) KU_RETURN_IF_ERROR(CheckPicture(picture));
  KU_ASSIGN_OR_RETURN(const std::vector<PlacedFrame> frames,
                      PlaceFrames(prompt, pictures, tokens_));
  KU_RETURN_IF_ERROR(CheckSizes(pictures));
  std::vector<int64_t> sources(pictures.size());
  std::transform(pictures.begin(), pictures.end(), sources.begin(),
                 [this](VisionInput& picture) { return SourceOf(picture); });
  PromptPictures patches = PromptPicturesOf(prompt, frames, pictures, sources);
  for (const int64_t source : patches.sources) ++pictures_.at(source).num_users;
  return patches;
}

void PictureStore::Drop(std::span<const int64_t> sources) {
  for (const int64_t source : sources) {
    Picture& picture = pictures_.at(source);
    if (--picture.num_users > 0) continue;
    picture.patches = {};
    ForgetIfUnused(source);
  }
}

// Does not free rows; only Prepare does.
void PictureStore::ForgetIfUnused(int64_t source) {
  const auto it = pictures_.find(source);
  const Picture& picture = it->second;
  if (picture.num_users > 0 || !picture.rows.empty() || cache_.is_resident(source)) return;
  sources_.erase(picture.identity);
  cache_.Forget(source);
  pictures_.erase(it);
}

std::map<int64_t, Status> PictureStore::Prepare(const MayContinue& go_on) {
  const std::vector<int64_t> evicted = cache_.TakeEvicted();
  if (!evicted.empty()) ops_.device().Sync();  // steps in flight may read the evicted rows
  for (const int64_t source : evicted) {
    // A source that was dropped since has no entry.
    const auto it = pictures_.find(source);
    if (it == pictures_.end()) continue;
    it->second.rows = {};
    ForgetIfUnused(source);
  }
  std::map<int64_t, Status> failed;
  for (auto& [source, picture] : pictures_) {
    if (!picture.rows.empty() || !cache_.is_held(source)) continue;
    const auto go_on_with_it = [&, id = source](double done) { return !go_on || go_on(id, done); };
    const Status encoded = EncodeRows(picture, go_on_with_it);
    if (!encoded.ok()) failed.emplace(source, encoded);
  }
  return failed;
}

Status PictureStore::EncodeRows(Picture& picture, const VisionProgress& go_on) {
  const PatchGrid& grid = picture.grid;
  const int64_t tokens = encoder_.num_tokens(grid.t, grid.h, grid.w);
  const size_t bytes = tokens * RowBytes(encoder_.config(), encoder_.out_type());
  StatusOr<Buffer> allocated = ops_.device().Allocate(bytes);
  if (!allocated.ok()) {
    return Status(
        StatusCode::kResourceExhausted,
        "there is no memory for the " + Counted(tokens, "token") + " of " + picture.name + ": " +
            allocated.status().message(Param),
        "lower " + Param("vision_cache_tokens") + " or " + Param("gpu_memory_utilization"));
  }
  Buffer rows = std::move(*allocated);
  const Tensor out = rows.As(encoder_.out_type(),
                             {tokens, 1 + encoder_.num_deepstack(), encoder_.config().out_hidden});
  const VisionPatches patches{.values = picture.patches, .t = grid.t, .h = grid.h, .w = grid.w};
  encoding_->Begin();
  const Status encoded = encoder_.Encode(patches, out, {}, go_on);
  encoding_->End();
  if (!encoded.ok()) ops_.device().Sync();  // layers in flight may write into the rows
  KU_RETURN_IF_ERROR(encoded);
  picture.rows = std::move(rows);
  ++num_encoded_;
  return OkStatus();
}

Tensor PictureStore::RowsOf(const Picture& picture) const {
  const PatchGrid& grid = picture.grid;
  const int64_t width = int64_t{1 + encoder_.num_deepstack()} * encoder_.config().out_hidden;
  return picture.rows.As(encoder_.out_type(), {encoder_.num_tokens(grid.t, grid.h, grid.w), width});
}

Tensor PictureStore::Rows(int64_t source) const {
  const auto it = pictures_.find(source);
  return it == pictures_.end() || it->second.rows.empty() ? Tensor() : RowsOf(it->second);
}

StatusOr<std::vector<float>> PictureStore::Encode(VisionInput input) {
  KU_RETURN_IF_ERROR(CheckPicture(input));
  KU_RETURN_IF_ERROR(CheckFrame(input));
  Picture picture{.name = NameOf(input), .patches = std::move(input.patches), .grid = input.grid};
  KU_RETURN_IF_ERROR(EncodeRows(picture));
  const Tensor rows = RowsOf(picture);
  std::vector<std::byte> bytes(rows.bytes());
  ops_.device().Download(Tensor::Dense(bytes.data(), rows.dtype, {rows.shape[0], rows.shape[1]}),
                         rows);
  ops_.device().Sync();
  std::vector<float> values(rows.numel());
  KU_CHECK(ConvertFloats(values.data(), DType::kF32, bytes.data(), rows.dtype, rows.numel()));
  return values;
}

}  // namespace kuiper
