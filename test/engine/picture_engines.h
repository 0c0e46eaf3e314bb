// Engines with a vision encoder, and difficult prompts for them, for tests of pictures in prompts.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/engine/engine.h"
#include "kuiper/engine/engine_parts.h"
#include "test/engine/engine_test_util.h"
#include "test/engine/picture_test_util.h"

namespace kuiper::test {

using Ids = std::vector<int32_t>;

inline constexpr int kNewTokens = 10;
inline constexpr int kContext = 96;

inline EngineConfig BaseConfig(Device device = {}) {
  EngineConfig config;
  config.model_path = TinyVision();
  config.need_tokenizer = false;
  config.device = device;
  config.ops.num_threads = 1;
  config.max_context = kContext;
  return config;
}

inline Request MakeRequest(const PicturePrompt& prompt, int new_tokens = kNewTokens) {
  Request request;
  request.prompt = prompt.ids;
  request.images = prompt.pictures;
  request.max_new_tokens = new_tokens;
  request.ignore_eos = true;
  request.keep_logits = true;
  return request;
}

inline PicturePrompt Joined(const std::string& name, const std::vector<Ids>& parts,
                            std::vector<VisionInput> pictures) {
  PicturePrompt prompt;
  prompt.name = name;
  for (const Ids& part : parts) prompt.ids.insert(prompt.ids.end(), part.begin(), part.end());
  prompt.pictures = std::move(pictures);
  return prompt;
}

// An image ends the prompt with its last pad, stands alone, or twice, with another between.
inline std::vector<PicturePrompt> HardPrompts() {
  const PatchGrid grid{1, 4, 6}, other{1, 6, 4};
  const VisionInput a = MakePicture("a", grid), b = MakePicture("b", other);
  std::vector<PicturePrompt> prompts = PicturePrompts();
  const Ids pads(6, kVisionTokens.image_pad);
  prompts.push_back(Joined("pads last", {TextIds("p", 3), pads}, {a}));
  prompts.push_back(Joined("pads alone", {pads}, {a}));
  prompts.push_back(Joined(
      "twice", {TextIds("q", 3), ImageIds(grid), ImageIds(other), ImageIds(grid), TextIds("r", 4)},
      {a, b, a}));
  return prompts;
}

inline std::unique_ptr<EngineParts> Parts(const EngineConfig& config) {
  auto parts = MakeEngineParts(config, OpenModel(config.model_path).value());
  EXPECT_TRUE(parts.ok()) << parts.status().message();
  return std::move(parts).value();
}

class PicturesTest : public ::testing::TestWithParam<Device> {
 protected:
  EngineConfig Config() const { return BaseConfig(GetParam()); }
  // The emulated device is slow: it runs only the middle value.
  std::vector<int> Some(std::vector<int> values) const {
    return GetParam().type == DeviceType::kSimt ? std::vector{values[values.size() / 2]} : values;
  }
};

}  // namespace kuiper::test
