#include "kuiper/io/image/image_processor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "test/io/image/image_test_util.h"

namespace kuiper {
namespace {

ImageProcessor Processor(const ImageOptions& options = {}, const VisionConfig& config = {}) {
  auto processor = ImageProcessor::Create(config, options);
  EXPECT_TRUE(processor.ok()) << processor.status().message();
  return *processor;
}

ImageOptions Budget(int64_t min, int64_t max) {
  ImageOptions options;
  options.min_pixels = min;
  options.max_pixels = max;
  return options;
}

// The settings of transformers with Pillow up to 12.
ImageOptions RowsFirst(ImageOptions options = {}) {
  options.scaling = ScalingOrder::kPillow12;
  return options;
}

std::string Sha256Of(const VisionInput& input) {
  return test::Sha256Text(std::span<const float>(input.patches));
}

std::string DigestOf(const VisionInput& input) {
  return HexText(input.digest);
}

TEST(ImageProcessorTest, PatchesAreThoseOfTransformers) {
  const JsonNode cases = test::JsonAt(test::ImagePath("patches.json"));
  ASSERT_EQ(cases.items.size(), 5u);
  for (const JsonNode& c : cases.items) {
    VisionConfig config;
    if (c.Find("clip") != nullptr) {  // other means and deviations for each colour
      config.mean = {0.48145466f, 0.4578275f, 0.40821073f};
      config.std = {0.26862954f, 0.26130258f, 0.27577711f};
    }
    const Picture picture = test::GeneratedPicture(static_cast<int>(test::Int(c, "width")),
                                                   static_cast<int>(test::Int(c, "height")));
    const auto input = Processor(Budget(test::Int(c, "min"), test::Int(c, "max")), config)
                           .FromPicture(picture, "generated");
    ASSERT_TRUE(input.ok()) << input.status().message();
    EXPECT_EQ(Sha256Of(*input), test::Text(c, "sha256")) << picture.width;
    EXPECT_EQ(input->grid.num_patches(), *c.Find("shape")->items[0].AsInt());
    EXPECT_EQ(input->width, picture.width);
    EXPECT_EQ(input->height, picture.height);
    EXPECT_TRUE(input->seconds.empty());
  }
}

// Checks the layout with a loop that goes through the output in order.
TEST(ImageProcessorTest, PatchesStandInMergeBlockOrder) {
  const Picture picture = test::GeneratedPicture(96, 64);
  const auto input = Processor(Budget(1, 1 << 20)).FromPicture(picture, "generated");
  ASSERT_TRUE(input.ok());
  EXPECT_EQ(input->grid, (PatchGrid{1, 4, 6}));
  EXPECT_EQ(input->num_tokens(), 6);
  ASSERT_EQ(input->patches.size(), 24u * 1536u);
  size_t at = 0;
  for (int block_y = 0; block_y < 2; ++block_y) {
    for (int block_x = 0; block_x < 3; ++block_x) {
      for (int patch = 0; patch < 4; ++patch) {
        for (int c = 0; c < 3; ++c) {
          for (int pixel = 0; pixel < 2 * 256; ++pixel, ++at) {
            const int y = block_y * 32 + patch / 2 * 16 + pixel % 256 / 16;
            const int x = block_x * 32 + patch % 2 * 16 + pixel % 16;
            ASSERT_NEAR(input->patches[at], picture.row(y)[3 * x + c] / 127.5 - 1, 1e-6) << at;
          }
        }
      }
    }
  }
}

TEST(ImageProcessorTest, SharedGoldens) {
  KU_REQUIRE_SHARED("image_goldens/preproc_goldens.json");
  const JsonNode goldens = test::JsonAt(test::Shared("image_goldens/preproc_goldens.json"));
  for (const JsonNode& c : goldens.Find("images")->items) {
    const std::string path = test::Shared("images/" + test::Text(c, "image"));
    const auto input =
        Processor(RowsFirst(Budget(65536, test::Int(c, "max_pixels")))).FromFile(path);
    ASSERT_TRUE(input.ok()) << input.status().message();
    EXPECT_EQ(input->source, path);
    EXPECT_EQ(input->num_tokens(), test::Int(c, "llm_tokens"));
    const std::vector<JsonNode>& grid = c.Find("grid_thw")->items;
    EXPECT_EQ(input->grid.h, *grid[1].AsInt());
    EXPECT_EQ(input->grid.w, *grid[2].AsInt());
    const auto expect_row = [&](const char* key, size_t first) {
      for (size_t i = 0; i < 8; ++i) {
        EXPECT_NEAR(input->patches[first + i], *c.Find(key)->items[i].AsDouble(), 1e-6) << path;
      }
    };
    expect_row("row0_first8", 0);
    expect_row("row5_last8", 5 * 1536 + 1528);
    double sum = 0;
    for (const float value : input->patches) sum += value;
    EXPECT_NEAR(sum / static_cast<double>(input->patches.size()), *c.Find("mean")->AsDouble(),
                1e-6);
  }
}

TEST(ImageProcessorTest, SharedPixelValues) {
  KU_REQUIRE_SHARED("image_goldens/chelsea_pixel_values_f32.npy");
  const auto input = Processor(RowsFirst()).FromFile(test::Shared("images/chelsea.png"));
  ASSERT_TRUE(input.ok()) << input.status().message();
  const std::string npy =
      test::FileBytes(test::Shared("image_goldens/chelsea_pixel_values_f32.npy"));
  const size_t bytes = input->patches.size() * sizeof(float);
  ASSERT_GT(npy.size(), bytes);
  std::vector<float> expected(input->patches.size());
  std::memcpy(expected.data(), npy.data() + npy.size() - bytes, bytes);
  float worst = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    worst = std::max(worst, std::abs(expected[i] - input->patches[i]));
  }
  EXPECT_LE(worst, 1e-6f);
}

// Reads real photographs with every decoder.
TEST(ImageProcessorTest, SharedPicturesAreRead) {
  KU_REQUIRE_SHARED("images");
  int pictures = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::Shared("images"))) {
    if (entry.path().extension() == ".txt") continue;
    const auto input = Processor().FromFile(entry.path().string());
    ASSERT_TRUE(input.ok()) << input.status().message();
    EXPECT_GE(input->num_tokens(), 64);
    ++pictures;
  }
  EXPECT_GE(pictures, 10);
}

TEST(ImageProcessorTest, EqualDigestsMeanEqualPatches) {
  const ImageProcessor processor = Processor(Budget(1, 1 << 20));
  Picture picture = test::GeneratedPicture(64, 32);
  const auto first = processor.FromPicture(picture, "a");
  const auto same = processor.FromPicture(picture, "b");
  picture.rgb.back() ^= 1;
  const auto other = processor.FromPicture(picture, "a");
  Picture tall = test::GeneratedPicture(32, 64);  // the same bytes in another grid
  const auto turned = processor.FromPicture(tall, "a");
  EXPECT_EQ(first->digest, same->digest);
  const std::set<std::string> digests = {DigestOf(*first), DigestOf(*other), DigestOf(*turned)};
  EXPECT_EQ(digests.size(), 3u);
}

TEST(ImageProcessorTest, FileBytesAndUrlAreTheSamePicture) {
  const ImageProcessor processor = Processor();
  const std::string path = test::ImagePath("palette-1.png");
  const auto file = processor.FromFile(path);
  const auto bytes = processor.FromBytes(test::FileBytes(path), "image 1");
  ASSERT_TRUE(file.ok() && bytes.ok());
  EXPECT_EQ(file->digest, bytes->digest);
  EXPECT_EQ(bytes->source, "image 1");
  const auto url = processor.FromUrl("https://example.org/cat.png", "image 1");
  ASSERT_FALSE(url.ok());
  EXPECT_EQ(url.status().code(), StatusCode::kInput);
}

TEST(ImageProcessorTest, TokensAreLimited) {
  const Picture picture = test::GeneratedPicture(640, 480);
  for (const int64_t max_tokens : {1, 3, 4, 63, 64, 65, 299, 300, 301, 100000}) {
    ImageOptions options;
    options.max_tokens = max_tokens;
    const auto input = Processor(options).FromPicture(picture, "a");
    ASSERT_TRUE(input.ok()) << max_tokens << ": " << input.status().message();
    EXPECT_LE(input->num_tokens(), max_tokens);
    EXPECT_GE(input->num_tokens(), std::min<int64_t>(max_tokens, 300) / 2);
  }
  // The shorter side has at least one patch, so 100:1 needs more than 50 tokens.
  ImageOptions options;
  options.max_tokens = 50;
  const auto narrow = Processor(options).FromPicture(test::GeneratedPicture(3200, 32), "a");
  ASSERT_FALSE(narrow.ok());
  EXPECT_EQ(narrow.status().message(),
            "a is so narrow that it takes 70 tokens, more than image_max_tokens");
}

TEST(ImageProcessorTest, RefusesImpossibleOptions) {
  const auto code = [](const ImageOptions& options) {
    const auto processor = ImageProcessor::Create({}, options);
    return processor.ok() ? StatusCode::kOk : processor.status().code();
  };
  EXPECT_EQ(code(Budget(100, 100)), StatusCode::kOk);
  EXPECT_EQ(code(Budget(101, 100)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Budget(0, 100)), StatusCode::kInvalidArgument);
  EXPECT_EQ(code(Budget(1, int64_t{1} << 40)), StatusCode::kInvalidArgument);
  ImageOptions options;
  options.max_tokens = 0;
  EXPECT_EQ(code(options), StatusCode::kInvalidArgument);
  options = {};
  options.max_pixels = 5000;  // less than the model's minimum
  EXPECT_EQ(code(options), StatusCode::kOk);
}

}  // namespace
}  // namespace kuiper
