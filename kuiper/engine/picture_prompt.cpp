#include "kuiper/engine/picture_prompt.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "kuiper/base/errors.h"
#include "kuiper/base/hash.h"
#include "kuiper/base/text.h"

namespace kuiper {
namespace {

std::string NameOf(std::span<const VisionInput> pictures, size_t index) {
  const std::string& source = pictures[index].source;
  return "picture " + std::to_string(index + 1) + (source.empty() ? "" : " (" + source + ")");
}

int32_t PadOf(const VisionInput& picture, const VisionTokens& ids) {
  return IsVideo(picture) ? ids.video_pad : ids.image_pad;
}

bool IsPad(int32_t id, const VisionTokens& ids) {
  return id == ids.image_pad || id == ids.video_pad;
}

// True if the tokenizer reads the id's text as this id, whatever text is next to it.
bool IsAddedToken(const Tokenizer& tokenizer, int32_t id) {
  return tokenizer.IsSpecial(id) || tokenizer.TokenId(tokenizer.Bytes(id)) == id;
}

// Appends text as if it had been encoded together with the text at the end of `ids`. If the
// tokenizer encodes that text to other ids, those in `ids` are kept.
void AppendText(const Tokenizer& tokenizer, const std::string& text, std::vector<int32_t>* ids) {
  auto begin = ids->end();
  while (begin != ids->begin() && !IsAddedToken(tokenizer, *(begin - 1))) --begin;
  std::string before;
  for (auto it = begin; it != ids->end(); ++it) before += tokenizer.Bytes(*it);
  const std::vector<int32_t> encoded = tokenizer.Encode(before);
  const bool joins = std::equal(begin, ids->end(), encoded.begin(), encoded.end());
  if (joins) ids->erase(begin, ids->end());
  const std::vector<int32_t> added = tokenizer.Encode(joins ? before + text : text);
  ids->insert(ids->end(), added.begin(), added.end());
}

void AppendVideo(const VisionInput& video, const VisionTokens& ids, const Tokenizer& tokenizer,
                 std::vector<int32_t>* expanded) {
  for (const double seconds : video.seconds) {
    char text[64];
    std::snprintf(text, sizeof text, "<%.1f seconds>", seconds);
    AppendText(tokenizer, text, expanded);
    expanded->push_back(ids.vision_start);
    expanded->insert(expanded->end(), FrameSizeOf(video).tokens(), ids.video_pad);
    expanded->push_back(ids.vision_end);
  }
}

// A number of pads, for messages: "3 <|image_pad|>".
std::string Count(int64_t count, const char* pad) {
  return std::to_string(count) + " " + pad;
}

Status CheckPlaceholders(std::span<const int32_t> prompt, std::span<const VisionInput> pictures,
                         const VisionTokens& ids) {
  const auto images = std::count(prompt.begin(), prompt.end(), ids.image_pad);
  const auto videos = std::count(prompt.begin(), prompt.end(), ids.video_pad);
  const auto num_videos = std::count_if(pictures.begin(), pictures.end(), IsVideo);
  const auto num_images = static_cast<int64_t>(pictures.size()) - num_videos;
  if (images == num_images && videos == num_videos) return OkStatus();
  return InvalidArgument("the prompt has places for " + Counted(images, "image") + " and " +
                         Counted(videos, "video") + ", and there are " +
                         Counted(num_images, "image") + " and " + Counted(num_videos, "video"));
}

// The error of a run of pads whose length is not that of its picture.
Status WrongNumber(std::span<const VisionInput> pictures, const PlacedFrame& frame, int64_t found) {
  const VisionInput& picture = pictures[frame.picture];
  const char* pad = IsVideo(picture) ? "<|video_pad|>" : "<|image_pad|>";
  const std::string part = IsVideo(picture) ? ", frame " + std::to_string(frame.frame + 1) : "";
  return InvalidArgument(NameOf(pictures, frame.picture) + part + " takes " +
                         Count(FrameSizeOf(picture).tokens(), pad) + ", and the prompt has " +
                         std::to_string(found) + " for it");
}

// Returns the key of one row; it is never an id.
uint64_t KeyOf(const VisionInput& picture, int32_t row) {
  uint64_t halves[2];
  static_assert(sizeof halves == sizeof picture.digest);
  std::memcpy(halves, picture.digest.data(), sizeof halves);
  return Fnv1a64({&row, 1}, halves[row % 2]) | uint64_t{1} << 63;
}

}  // namespace

StatusOr<std::vector<int32_t>> ExpandPictures(std::span<const int32_t> prompt,
                                              std::span<const VisionInput> pictures,
                                              const VisionTokens& ids, const Tokenizer* tokenizer) {
  KU_RETURN_IF_ERROR(CheckPlaceholders(prompt, pictures, ids));
  std::vector<int32_t> expanded;
  size_t next = 0;
  for (size_t i = 0; i < prompt.size(); ++i) {
    if (!IsPad(prompt[i], ids)) {
      expanded.push_back(prompt[i]);
      continue;
    }
    const VisionInput& picture = pictures[next++];
    if (PadOf(picture, ids) != prompt[i]) {
      return InvalidArgument(NameOf(pictures, next - 1) +
                             (IsVideo(picture) ? " is a video" : " is an image") +
                             ", but the prompt has a pad of the other kind there");
    }
    if (!IsVideo(picture)) {
      expanded.insert(expanded.end(), picture.num_tokens(), ids.image_pad);
      continue;
    }
    if (tokenizer == nullptr)
      return InvalidArgument("a video needs a tokenizer for the seconds of its frames");
    const bool is_enclosed = !expanded.empty() && expanded.back() == ids.vision_start &&
                             i + 1 < prompt.size() && prompt[i + 1] == ids.vision_end;
    if (is_enclosed) {
      expanded.pop_back();
      ++i;
    }
    AppendVideo(picture, ids, *tokenizer, &expanded);
  }
  return expanded;
}

StatusOr<std::vector<PlacedFrame>> PlaceFrames(std::span<const int32_t> prompt,
                                               std::span<const VisionInput> pictures,
                                               const VisionTokens& ids) {
  std::vector<PlacedFrame> frames;
  const int num_tokens = static_cast<int>(prompt.size()), num = static_cast<int>(pictures.size());
  int pos = 0;
  const auto next_pad = [&] {
    while (pos < num_tokens && !IsPad(prompt[pos], ids)) ++pos;
  };
  for (int picture = 0; picture < num; ++picture) {
    const int32_t pad = PadOf(pictures[picture], ids);
    const int tokens = FrameSizeOf(pictures[picture]).tokens();
    for (int frame = 0; frame < pictures[picture].grid.t; ++frame) {
      next_pad();
      const PlacedFrame placed{picture, frame, pos};
      while (pos < num_tokens && pos - placed.begin < tokens && prompt[pos] == pad) ++pos;
      // Pads that follow directly may belong to the next frame.
      if (pos - placed.begin < tokens) return WrongNumber(pictures, placed, pos - placed.begin);
      frames.push_back(placed);
    }
  }
  next_pad();
  if (pos == num_tokens) return frames;
  const auto is_pad = [&](int32_t id) { return IsPad(id, ids); };
  const auto too_many = std::count_if(prompt.begin() + pos, prompt.end(), is_pad);
  if (!frames.empty() && IsPad(prompt[pos - 1], ids)) {
    return WrongNumber(pictures, frames.back(), pos - frames.back().begin + too_many);
  }
  return InvalidArgument("the prompt has " + Counted(too_many, "pad") + " without a picture");
}

PromptPictures PromptPicturesOf(std::span<const int32_t> prompt,
                                std::span<const PlacedFrame> frames,
                                std::span<const VisionInput> pictures,
                                std::span<const int64_t> sources) {
  PromptPictures patches;
  int32_t shift = 0;  // position minus token index, for text before the frame
  for (const PlacedFrame& frame : frames) {
    const FrameSize size = FrameSizeOf(pictures[frame.picture]);
    const OverrideSpan span{.begin = frame.begin,
                            .position = frame.begin + shift,
                            .rows = size.rows,
                            .columns = size.columns,
                            .source = sources[frame.picture],
                            .first_row = frame.frame * size.tokens()};
    shift = span.next_position() - span.end();
    patches.keys.insert(patches.keys.end(), prompt.begin() + patches.keys.size(),
                        prompt.begin() + span.begin);
    for (int32_t i = 0; i < size.tokens(); ++i) {
      patches.keys.push_back(KeyOf(pictures[frame.picture], span.first_row + i));
    }
    patches.spans.push_back(span);
  }
  patches.sources.assign(sources.begin(), sources.end());
  std::sort(patches.sources.begin(), patches.sources.end());
  patches.sources.erase(std::unique(patches.sources.begin(), patches.sources.end()),
                        patches.sources.end());
  return patches;
}

}  // namespace kuiper
