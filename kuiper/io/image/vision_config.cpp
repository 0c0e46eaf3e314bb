#include "kuiper/io/image/vision_config.h"

#include <cmath>
#include <cstddef>
#include <filesystem>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "kuiper/base/json.h"
#include "kuiper/base/text.h"

namespace kuiper {
namespace {

constexpr size_t kMaxConfigBytes = 1 << 20;
constexpr const char* kProcessorFile = "processor_config.json";
constexpr const char* kImageFile = "preprocessor_config.json";
constexpr const char* kVideoFile = "video_preprocessor_config.json";

// Reads the settings of images or videos, field by field; keeps the first error.
class Reader {
 public:
  Reader(const JsonNode& root, const std::string& path) : root_(root), path_(path) {}

  void Int(std::string_view key, int* out) { IntOf(root_, key, out); }
  void Number(std::string_view key, double* out) {
    const JsonNode* node = Field(root_, key);
    if (node == nullptr) return;
    const std::optional<double> value = node->AsDouble();
    if (value.has_value()) *out = *value;
    Expect(value.has_value(), key, "a number");
  }
  void Channels(std::string_view key, std::array<float, 3>* out) {
    const JsonNode* node = Field(root_, key);
    if (node == nullptr) return;
    Expect(node->IsArray() && node->items.size() == 3, key, "three numbers");
    for (size_t c = 0; status_.ok() && c < 3; ++c) {
      const std::optional<double> value = node->items[c].AsDouble();
      Expect(value.has_value(), key, "three numbers");
      (*out)[c] = static_cast<float>(value.value_or(0));
    }
  }
  // Reads "size" of current files, or the two keys of older ones. Its fields are named edges but
  // hold areas.
  void Budget(PixelBudget* out) {
    const JsonNode* size = Field(root_, "size");
    if (size != nullptr) {
      IntOf(*size, "shortest_edge", &out->min);
      IntOf(*size, "longest_edge", &out->max);
    }
    IntOf(root_, "min_pixels", &out->min);
    IntOf(root_, "max_pixels", &out->max);
  }
  const Status& status() const { return status_; }

 private:
  static const JsonNode* Field(const JsonNode& object, std::string_view key) {
    const JsonNode* node = object.Find(key);
    return node == nullptr || node->IsNull() ? nullptr : node;
  }
  template <typename T>
  void IntOf(const JsonNode& object, std::string_view key, T* out) {
    const JsonNode* node = Field(object, key);
    if (node == nullptr) return;
    const std::optional<int64_t> value = node->AsInt();
    const bool fits = value.has_value() && std::in_range<T>(*value);
    if (fits) *out = static_cast<T>(*value);
    Expect(fits, key, "a whole number");
  }
  void Expect(bool fits, std::string_view key, std::string_view wanted) {
    if (fits || !status_.ok()) return;
    status_ = Status(StatusCode::kModel,
                     path_ + ": \"" + std::string(key) + "\" is not " + std::string(wanted));
  }

  const JsonNode& root_;
  const std::string& path_;
  Status status_;
};

// A file or a part of one, and its name in messages; has no root if it is absent.
struct Settings {
  std::string path;
  std::optional<JsonNode> root;
};

StatusOr<Settings> ParseFile(const std::string& text, const std::string& path) {
  Settings settings{path, {}};
  if (text.empty()) return settings;
  KU_ASSIGN_OR_RETURN(settings.root, ParseJson(text, StatusCode::kModel, path));
  return settings;
}

StatusOr<Settings> Part(const Settings& file, std::string_view key) {
  Settings part{file.path + ", " + std::string(key), {}};
  const JsonNode* node = file.root.has_value() ? file.root->Find(key) : nullptr;
  if (node == nullptr || node->IsNull()) return part;
  if (!node->IsObject()) return Status(StatusCode::kModel, part.path + " is not an object");
  part.root = *node;
  return part;
}

}  // namespace

Status VisionConfig::Check(const std::string& source) const {
  const auto wrong = [&](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, source + ": " + what);
  };
  if (patch_size < 1 || patch_size > 256) return wrong("patches have 1 to 256 pixels a side");
  if (temporal_patch_size < 1 || temporal_patch_size > 16)
    return wrong("patches have 1 to 16 frames");
  if (merge_size < 1 || merge_size > 16) return wrong("1 to 16 patches a side become a token");
  for (size_t c = 0; c < 3; ++c) {
    if (!std::isfinite(mean[c]) || !std::isfinite(std[c]) || !(std[c] > 0)) {
      return wrong("the means and deviations of colours are not numbers to divide by");
    }
  }
  // The float values must fit into memory whose size can be computed.
  constexpr int64_t kMaxBudget = int64_t{1} << 32;
  for (const PixelBudget& budget : {image_pixels, video_pixels}) {
    if (budget.min < 1 || budget.max < budget.min || budget.max > kMaxBudget) {
      return wrong("pixels from " + std::to_string(budget.min) + " to " +
                   std::to_string(budget.max) + " are not a range within 1 to " +
                   std::to_string(kMaxBudget));
    }
  }
  if (!(sampled_fps > 0) || !std::isfinite(sampled_fps))
    return wrong("frames per second are not positive");
  if (min_frames < 1 || max_frames < min_frames)
    return wrong("the numbers of frames are not a range");
  return OkStatus();
}

StatusOr<VisionConfig> ParseVisionConfig(const ProcessorTexts& texts, const std::string& prefix) {
  KU_ASSIGN_OR_RETURN(const Settings both, ParseFile(texts.both, prefix + kProcessorFile));
  KU_ASSIGN_OR_RETURN(const Settings images, ParseFile(texts.images, prefix + kImageFile));
  KU_ASSIGN_OR_RETURN(const Settings videos, ParseFile(texts.videos, prefix + kVideoFile));
  KU_ASSIGN_OR_RETURN(Settings image, Part(both, "image_processor"));
  if (!image.root.has_value()) image = images;
  if (!image.root.has_value()) {
    return Status(
        StatusCode::kModel,
        prefix + kImageFile + " is missing, and so is \"image_processor\" in " + kProcessorFile,
        "copy these files of the model");
  }
  VisionConfig config;
  Reader reader(*image.root, image.path);
  reader.Int("patch_size", &config.patch_size);
  reader.Int("temporal_patch_size", &config.temporal_patch_size);
  reader.Int("merge_size", &config.merge_size);
  reader.Channels("image_mean", &config.mean);
  reader.Channels("image_std", &config.std);
  reader.Budget(&config.image_pixels);
  KU_RETURN_IF_ERROR(reader.status());
  KU_ASSIGN_OR_RETURN(Settings video, Part(both, "video_processor"));
  if (!video.root.has_value()) video = videos.root.has_value() ? videos : images;
  if (video.root.has_value()) {
    Reader video_reader(*video.root, video.path);
    video_reader.Budget(&config.video_pixels);
    video_reader.Number("fps", &config.sampled_fps);
    video_reader.Int("min_frames", &config.min_frames);
    video_reader.Int("max_frames", &config.max_frames);
    KU_RETURN_IF_ERROR(video_reader.status());
  }
  const Status fits = config.Check(image.path);
  if (!fits.ok()) return Status(StatusCode::kModel, fits.message());
  return config;
}

StatusOr<VisionConfig> ReadVisionConfig(const std::string& model_dir) {
  const std::string prefix = model_dir + "/";
  ProcessorTexts texts;
  for (const auto& [file, text] : {std::pair(kProcessorFile, &texts.both),
                                   {kImageFile, &texts.images},
                                   {kVideoFile, &texts.videos}}) {
    std::error_code error;
    if (!std::filesystem::exists(prefix + file, error)) continue;
    KU_ASSIGN_OR_RETURN(*text, ReadTextFile(prefix + file, kMaxConfigBytes, StatusCode::kModel));
  }
  return ParseVisionConfig(texts, prefix);
}

}  // namespace kuiper
