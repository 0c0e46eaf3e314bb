// Placeholders, pads, positions and keys of prompts with pictures, without a model.
#include "kuiper/engine/picture_prompt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "test/engine/picture_test_util.h"

namespace kuiper {
namespace {

using test::ImageIds;
using test::kVisionTokens;
using test::MakePicture;
using Ids = std::vector<int32_t>;

constexpr int32_t kImage = 90, kVideo = 91, kStart = 92, kEnd = 93;

Ids Joined(const std::vector<Ids>& parts) {
  Ids ids;
  for (const Ids& part : parts) ids.insert(ids.end(), part.begin(), part.end());
  return ids;
}

PromptPictures Patches(const Ids& ids, const std::vector<VisionInput>& pictures) {
  const auto frames = PlaceFrames(ids, pictures, kVisionTokens);
  EXPECT_TRUE(frames.ok()) << frames.status().message();
  std::vector<int64_t> sources;
  for (size_t i = 0; i < pictures.size(); ++i) sources.push_back(10 * (1 + i));
  return PromptPicturesOf(ids, frames.value(), pictures, sources);
}

TEST(PicturePromptTest, PositionsAreThoseOfTransformers) {
  for (const test::PicturePrompt& prompt : test::PicturePrompts()) {
    const PromptPictures patches = Patches(prompt.ids, prompt.pictures);
    const int length = static_cast<int>(prompt.ids.size());
    for (int axis = 0; axis < 3; ++axis) {
      Ids whole, pieces;
      AppendPositions(patches.spans, 0, length, axis, &whole);
      EXPECT_EQ(whole, prompt.positions[axis]) << prompt.name << " axis " << axis;
      for (const int chunk : {1, 5}) {
        pieces.clear();
        for (int begin = 0; begin < length; begin += chunk) {
          AppendPositions(patches.spans, begin, std::min(length, begin + chunk), axis, &pieces);
        }
        EXPECT_EQ(pieces, whole) << prompt.name << " in pieces of " << chunk;
      }
      Ids generated;
      AppendPositions(patches.spans, length, length + 2, axis, &generated);
      EXPECT_EQ(generated, (Ids{length + prompt.delta, length + 1 + prompt.delta})) << prompt.name;
    }
  }
}

TEST(PicturePromptTest, PatchesNameTheRowsOfTheirSources) {
  const test::PicturePrompt prompt = test::FindPrompt("both");  // an image, a video of 3 frames
  const PromptPictures patches = Patches(prompt.ids, prompt.pictures);
  ASSERT_EQ(patches.spans.size(), 4u);
  EXPECT_EQ(patches.sources, (std::vector<int64_t>{10, 20}));
  EXPECT_EQ(patches.spans[0].source, 10);
  for (int frame = 0; frame < 3; ++frame) {
    EXPECT_EQ(patches.spans[1 + frame].source, 20);
    EXPECT_EQ(patches.spans[1 + frame].first_row, 4 * frame);
  }
  std::vector<StepPlan::EmbeddingOverride> cut;
  AppendOverrides(patches.spans, 2, patches.spans[1].begin + 1, &cut);
  ASSERT_EQ(cut.size(), 2u);
  EXPECT_EQ(cut[0].first_row, 1) << "the image begins with token 1";
  EXPECT_EQ(cut[0].rows.begin, 0);
  EXPECT_EQ(cut[0].rows.end, 5);
  EXPECT_EQ(cut[1].rows.begin, patches.spans[1].begin - 2);
  EXPECT_EQ(cut[1].rows.size(), 1);
}

TEST(PicturePromptTest, KeysTellPicturesApartAndRowsOfOnePicture) {
  const PatchGrid grid{1, 4, 4};
  const Ids ids = Joined({{5, 6}, ImageIds(grid), {7}});
  const auto keys = [&](const VisionInput& picture) { return Patches(ids, {picture}).keys; };
  const auto a = keys(MakePicture("a", grid)), b = keys(MakePicture("b", grid));
  EXPECT_EQ(a, keys(MakePicture("a", grid)));
  ASSERT_EQ(a.size(), 2u + 1 + 4) << "up to the last pad";
  EXPECT_EQ(a[0], 5u);
  EXPECT_EQ(a[2], static_cast<uint64_t>(kStart));
  std::set<uint64_t> distinct;
  for (int row = 0; row < 4; ++row) {
    EXPECT_NE(a[3 + row], b[3 + row]) << row;
    EXPECT_GT(a[3 + row], uint64_t{1} << 62) << "no id";
    distinct.insert(a[3 + row]);
  }
  EXPECT_EQ(distinct.size(), 4u);
  // Each byte of the digest affects one of two consecutive rows.
  for (size_t byte = 0; byte < 16; ++byte) {
    VisionInput changed = MakePicture("a", grid);
    changed.digest[byte] ^= 1;
    const auto other = keys(changed);
    EXPECT_NE(std::pair(other[3], other[4]), std::pair(a[3], a[4])) << byte;
    EXPECT_NE(std::pair(other[4], other[5]), std::pair(a[4], a[5])) << byte;
  }
}

TEST(PicturePromptTest, PadsMustBeExactlyThoseOfThePictures) {
  const VisionInput image = MakePicture("image", {1, 4, 4}),
                    video = MakePicture("video", {2, 2, 4});
  const auto error = [](const Ids& ids, const std::vector<VisionInput>& pictures) {
    const auto frames = PlaceFrames(ids, pictures, kVisionTokens);
    if (frames.ok()) return std::string("no error");
    EXPECT_EQ(frames.status().code(), StatusCode::kInvalidArgument);
    return frames.status().message();
  };
  const Ids four(4, kImage), two(2, kVideo);
  EXPECT_EQ(error(Joined({{1}, four, {2}}), {image}), "no error");
  EXPECT_EQ(error(Joined({four, four}), {image, image}), "no error") << "side by side";
  EXPECT_EQ(error(Joined({two, {3}, two}), {video}), "no error");
  EXPECT_EQ(error({kImage, kImage, kImage, 5}, {image}),
            "picture 1 (image) takes 4 <|image_pad|>, and the prompt has 3 for it");
  EXPECT_EQ(error(Joined({{1}, four, {kImage, 4}}), {image}),
            "picture 1 (image) takes 4 <|image_pad|>, and the prompt has 5 for it");
  EXPECT_EQ(error(Joined({four, {3}}), {image, image}),
            "picture 2 (image) takes 4 <|image_pad|>, and the prompt has 0 for it");
  EXPECT_EQ(error(Joined({four, {3}, four}), {image}), "the prompt has 4 pads without a picture");
  EXPECT_EQ(error({1, kVideo}, {}), "the prompt has 1 pad without a picture");
  EXPECT_EQ(error(Joined({two, {3}, {kVideo}}), {video}),
            "picture 1 (video), frame 2 takes 2 <|video_pad|>, and the prompt has 1 for it");
  EXPECT_EQ(error(four, {video}),
            "picture 1 (video), frame 1 takes 2 <|video_pad|>, and the prompt has 0 for it");
}

TEST(PicturePromptTest, PlaceholdersOfImagesBecomeTheirPads) {
  const std::vector<VisionInput> pictures = {MakePicture("a", {1, 4, 6}),
                                             MakePicture("b", {1, 2, 2})};
  const Ids prompt = {5, kStart, kImage, kEnd, 6, kStart, kImage, kEnd};
  const auto expanded = ExpandPictures(prompt, pictures, kVisionTokens, nullptr);
  ASSERT_TRUE(expanded.ok());
  EXPECT_EQ(*expanded, Joined({{5}, ImageIds({1, 4, 6}), {6}, ImageIds({1, 2, 2})}));
  EXPECT_TRUE(PlaceFrames(*expanded, pictures, kVisionTokens).ok());

  const auto bad = ExpandPictures(prompt, {pictures.data(), 1}, kVisionTokens, nullptr);
  EXPECT_EQ(bad.status().message(),
            "the prompt has places for 2 images and 0 videos, and there are 1 image and 0 videos");
  const VisionInput video = MakePicture("v", {2, 2, 2});
  const auto mixed =
      ExpandPictures(Ids{kVideo, kImage}, std::vector{pictures[0], video}, kVisionTokens, nullptr);
  EXPECT_EQ(mixed.status().message(),
            "picture 1 (a) is an image, but the prompt has a pad of the other kind there");
}

// With a real tokenizer, whose added tokens replace the vision tokens.
TEST(PicturePromptTest, PlaceholdersOfVideosBecomeFramesWithTheirSeconds) {
  const auto tokenizer = Tokenizer::Load(test::Source("demo/models/tiny-qwen3")).value();
  const VisionTokens tokens{.image_pad = 1 << 20,
                            .video_pad = (1 << 20) + 1,
                            .vision_start = tokenizer->TokenId("<|im_start|>").value(),
                            .vision_end = tokenizer->TokenId("<|im_end|>").value()};
  VisionInput video = MakePicture("v", {2, 2, 4});
  video.seconds = {0.25, 12.35};
  const auto frame = [&](const std::string& text) {
    Ids ids = tokenizer->EncodeWithSpecials(text + "<|im_start|>");
    ids.insert(ids.end(), 2, tokens.video_pad);
    ids.push_back(tokens.vision_end);
    return ids;
  };
  const auto expand = [&](const Ids& prompt) {
    return ExpandPictures(prompt, {&video, 1}, tokens, tokenizer.get()).value();
  };
  // Rounds like printf and Python: the exact double, ties to even.
  const Ids frames = Joined({frame("<0.2 seconds>"), frame("<12.3 seconds>")});
  const Ids pad = {tokens.video_pad};
  EXPECT_EQ(expand(Joined({{tokens.vision_start}, pad, {tokens.vision_end}, {7}})),
            Joined({frames, {7}}));
  EXPECT_EQ(expand(Joined({{tokens.vision_end}, pad})), Joined({{tokens.vision_end}, frames}))
      << "without the tokens around it";
  // The text before it is encoded together with the seconds.
  for (const std::string before : {"Look <", "two\n", "a<<", "  "}) {
    const Ids text = tokenizer->EncodeWithSpecials("<|im_end|>" + before);
    EXPECT_EQ(expand(Joined({text, {tokens.vision_start}, pad, {tokens.vision_end}})),
              Joined({frame("<|im_end|>" + before + "<0.2 seconds>"), frame("<12.3 seconds>")}))
        << before;
  }
  EXPECT_EQ(ExpandPictures(pad, {&video, 1}, tokens, nullptr).status().code(),
            StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace kuiper
