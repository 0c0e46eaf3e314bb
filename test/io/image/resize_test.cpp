#include "kuiper/io/image/resize.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "test/io/image/image_test_util.h"

namespace kuiper {
namespace {

std::vector<int64_t> Row(const JsonNode& array) {
  std::vector<int64_t> row;
  for (const JsonNode& item : array.items) row.push_back(*item.AsInt());
  return row;
}

TEST(ResizeTest, BytesAreThoseOfPillow) {
  const JsonNode cases = test::JsonAt(test::ImagePath("resize.json"));
  ASSERT_GE(cases.items.size(), 40u);
  int num_different = 0;
  for (const JsonNode& c : cases.items) {
    const Picture picture = test::GeneratedPicture(static_cast<int>(test::Int(c, "width")),
                                                   static_cast<int>(test::Int(c, "height")));
    const std::vector<int64_t> to = Row(*c.Find("to"));
    for (const auto& [order, key] :
         {std::pair(ScalingOrder::kPillow13, "sha256"), {ScalingOrder::kPillow12, "rows_first"}}) {
      const auto scaled = Resize(picture, {.height = to[1], .width = to[0]}, order);
      ASSERT_TRUE(scaled.ok()) << scaled.status().message();
      EXPECT_EQ(test::Sha256Text(*scaled), test::Text(c, key))
          << picture.width << "x" << picture.height << " to " << to[0] << "x" << to[1];
    }
    num_different += test::Text(c, "sha256") != test::Text(c, "rows_first") ? 1 : 0;
  }
  EXPECT_GE(num_different, 10);
}

TEST(ResizeTest, SizesOfPicturesAreThoseOfTransformers) {
  const JsonNode table = test::JsonAt(test::ImagePath("sizes.json"));
  const JsonNode& cases = *table.Find("images");
  ASSERT_EQ(cases.items.size(), 200u);
  for (const JsonNode& item : cases.items) {
    const std::vector<int64_t> c = Row(item);
    const auto size = FitPicture({c[0], c[1]}, 32, {.min = c[2], .max = c[3]}, "cat.jpg");
    ASSERT_TRUE(size.ok()) << size.status().message();
    EXPECT_EQ(*size, (PictureSize{c[4], c[5]})) << c[0] << "x" << c[1];
  }
}

TEST(ResizeTest, SizesOfVideosAreThoseOfTransformers) {
  const JsonNode table = test::JsonAt(test::ImagePath("sizes.json"));
  const JsonNode& cases = *table.Find("videos");
  ASSERT_EQ(cases.items.size(), 100u);
  for (const JsonNode& item : cases.items) {
    const std::vector<int64_t> c = Row(item);
    const auto size = FitVideo(c[0], {c[1], c[2]}, 32, 2, {.min = c[3], .max = c[4]}, "clip");
    ASSERT_TRUE(size.ok()) << size.status().message();
    EXPECT_EQ(*size, (PictureSize{c[5], c[6]})) << c[0] << " of " << c[1] << "x" << c[2];
  }
}

TEST(ResizeTest, SharedSizes) {
  KU_REQUIRE_SHARED("image_goldens/preproc_goldens.json");
  const JsonNode goldens = test::JsonAt(test::Shared("image_goldens/preproc_goldens.json"));
  for (const JsonNode& c : goldens.Find("smart_resize")->items) {
    const std::vector<int64_t> from = Row(*c.Find("hw")), to = Row(*c.Find("out"));
    const PixelBudget budget{.min = test::Int(c, "min"), .max = test::Int(c, "max")};
    const auto size = FitPicture({from[0], from[1]}, 32, budget, "cat.jpg");
    ASSERT_TRUE(size.ok()) << size.status().message();
    EXPECT_EQ(*size, (PictureSize{to[0], to[1]})) << from[0] << "x" << from[1];
  }
}

// 400 / 32 and 720 / 32 are halfway between two integers: the even one is taken.
TEST(ResizeTest, HalvesGoToTheEvenNumber) {
  const PixelBudget any{.min = 1, .max = 1 << 30};
  EXPECT_EQ(*FitPicture({400, 720}, 32, any, ""), (PictureSize{384, 704}));
  EXPECT_EQ(*FitPicture({48, 80}, 32, any, ""), (PictureSize{64, 64}));
  EXPECT_EQ(*FitPicture({432, 399}, 32, any, ""), (PictureSize{448, 384}));
}

TEST(ResizeTest, RefusesWhatTheModelCannotSee) {
  const PixelBudget budget{.min = 65536, .max = 1 << 24};
  EXPECT_TRUE(FitPicture({1, 200}, 32, budget, "a").ok());
  const auto narrow = FitPicture({824, 2}, 32, budget, "cat.jpg");
  ASSERT_FALSE(narrow.ok());
  EXPECT_EQ(narrow.status().code(), StatusCode::kInput);
  EXPECT_EQ(narrow.status().message(), "cat.jpg: aspect ratio 412:1 exceeds 200:1");
  EXPECT_FALSE(FitPicture({201, 1}, 32, budget, "a").ok());
  EXPECT_FALSE(FitVideo(1, {64, 64}, 32, 2, budget, "clip").ok());
  EXPECT_FALSE(FitVideo(2, {31, 64}, 32, 2, budget, "clip").ok());
  EXPECT_TRUE(FitVideo(2, {32, 64}, 32, 2, budget, "clip").ok());
}

}  // namespace
}  // namespace kuiper
