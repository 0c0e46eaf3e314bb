// Writes the logits of every position of a prompt given as token ids, and the vision encoder's
// output for its images, for comparison with other engines.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "kuiper/base/append_file.h"
#include "kuiper/chat/engine_choices.h"
#include "kuiper/engine/engine.h"
#include "kuiper/engine/picture_config.h"
#include "kuiper/io/image/image_processor.h"
#include "kuiper/io/npy.h"
#include "tools/tool_args.h"

namespace kuiper::tools {
namespace {

constexpr const char* kUsage =
    "kuiper_logits MODEL --ids FILE [--image FILE]... [--video PATH]... --out FILE.npy [options]";

StatusOr<std::vector<int32_t>> ReadIds(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Status(StatusCode::kInput, "cannot read " + path);
  std::vector<int32_t> ids;
  for (std::string word; file >> word;) {
    int32_t id = 0;
    const char* end = word.data() + word.size();
    const auto result = std::from_chars(word.data(), end, id);
    if (result.ec != std::errc() || result.ptr != end) {
      return Status(StatusCode::kInput, path + " holds something that is not a token id after " +
                                            std::to_string(ids.size()) + " ids");
    }
    ids.push_back(id);
  }
  if (ids.empty()) return Status(StatusCode::kInput, path + " holds no token ids");
  return ids;
}

struct Options {
  Options() {
    config.need_tokenizer = false;
    config.paged = false;
    config.prompt_logits = true;
  }

  std::string ids_path, out_path, embeds_path;
  std::vector<std::string> images, videos;
  std::optional<double> fps;
  ImageOptions image;
  EngineConfig config;
  std::optional<int> chunk;
};

// Orders images and videos by their placeholders in the prompt; those of one kind are taken in the
// given order.
std::vector<VisionInput> InPromptOrder(const std::vector<int32_t>& ids, const VisionTokens& tokens,
                                       std::vector<VisionInput> images,
                                       std::vector<VisionInput> videos) {
  std::vector<VisionInput> pictures;
  size_t image = 0, video = 0;
  const auto next = [&](std::vector<VisionInput>& of, size_t* i) {
    pictures.push_back(std::move(of[(*i)++]));
    return pictures.back().num_tokens();
  };
  int64_t left = 0;  // remaining placeholders of the current image or video
  for (const int32_t id : ids) {
    if (id != tokens.image_pad && id != tokens.video_pad) continue;
    if (left == 0 && id == tokens.image_pad && image < images.size()) left = next(images, &image);
    if (left == 0 && id == tokens.video_pad && video < videos.size()) left = next(videos, &video);
    left = std::max<int64_t>(0, left - 1);
  }
  // Images without placeholders; the engine reports the error.
  while (image < images.size()) next(images, &image);
  while (video < videos.size()) next(videos, &video);
  return pictures;
}

StatusOr<std::vector<VisionInput>> ReadPictures(const Options& options, const OpenedModel& model,
                                                const std::vector<int32_t>& ids) {
  if (options.images.empty() && options.videos.empty()) return std::vector<VisionInput>();
  if (!model.config.vision_tokens.has_value()) {
    return Status(StatusCode::kInvalidArgument,
                  "the model has no vision encoder: it takes no pictures");
  }
  KU_ASSIGN_OR_RETURN(const VisionConfig config, ReadVisionConfig(model));
  KU_ASSIGN_OR_RETURN(const ImageProcessor processor,
                      ImageProcessor::Create(config, options.image));
  std::vector<VisionInput> images, videos;
  for (const std::string& path : options.images) {
    KU_ASSIGN_OR_RETURN(images.emplace_back(), processor.FromFile(path));
  }
  for (const std::string& path : options.videos) {
    KU_ASSIGN_OR_RETURN(videos.emplace_back(), processor.FromVideo(path, options.fps));
  }
  return InPromptOrder(ids, *model.config.vision_tokens, std::move(images), std::move(videos));
}

// Writes float32 [tokens of all images and videos, (1 + K) * hidden].
Status DumpEmbeds(Engine& engine, const std::vector<VisionInput>& pictures,
                  const std::string& path) {
  int64_t num_rows = 0;
  for (const VisionInput& picture : pictures) num_rows += picture.num_tokens();
  const VisionEncoderConfig& tower = *engine.model_config().vision;
  const int width = (1 + tower.num_deepstack()) * tower.out_hidden;
  NpyWriter out;
  KU_RETURN_IF_ERROR(out.Open(path, static_cast<int>(num_rows), width));
  for (const VisionInput& picture : pictures) {
    KU_ASSIGN_OR_RETURN(const std::vector<float> rows, engine.EncodePicture(picture));
    for (size_t begin = 0; begin < rows.size(); begin += width) {
      KU_RETURN_IF_ERROR(out.WriteRow(rows.data() + begin));
    }
  }
  return out.Close();
}

Status Run(const ParsedArgs& args, const Options& options) {
  if (options.ids_path.empty() || options.out_path.empty()) {
    return Status(StatusCode::kInvalidArgument, "--ids and --out are needed",
                  std::string("usage: ") + kUsage);
  }
  EngineConfig config = options.config;
  config.model_path = args.positionals[0];
  KU_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ReadIds(options.ids_path));
  config.max_context = static_cast<int>(ids.size());
  config.max_num_batched_tokens = options.chunk.value_or(std::min(config.max_context, 512));
  KU_RETURN_IF_ERROR(CheckWritable(options.out_path));
  if (!options.embeds_path.empty()) {
    if (options.images.empty() && options.videos.empty()) {
      return Status(StatusCode::kInvalidArgument, "--dump-image-embeds needs --image or --video");
    }
    KU_RETURN_IF_ERROR(CheckWritable(options.embeds_path));
  }
  KU_ASSIGN_OR_RETURN(OpenedModel model, OpenModel(config.model_path));
  KU_ASSIGN_OR_RETURN(std::vector<VisionInput> pictures, ReadPictures(options, model, ids));
  config.image_max_tokens = 0;
  for (const VisionInput& picture : pictures) {
    config.image_max_tokens =
        std::max(*config.image_max_tokens, picture.num_tokens() / picture.grid.t);
  }
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine,
                      Engine::Create(config, std::move(model)));
  if (!options.embeds_path.empty()) {
    KU_RETURN_IF_ERROR(DumpEmbeds(*engine, pictures, options.embeds_path));
  }

  NpyWriter out;
  const int vocab = engine->model_config().decoder.vocab;
  KU_RETURN_IF_ERROR(out.Open(options.out_path, config.max_context, vocab));
  Status written;
  std::optional<int> not_finite;  // first such position
  const auto write_row = [&](int position, const float* row) {
    if (written.ok()) written = out.WriteRow(row);
    const bool finite = std::all_of(row, row + vocab, [](float x) { return std::isfinite(x); });
    if (!finite && !not_finite.has_value()) not_finite = position;
  };
  KU_RETURN_IF_ERROR(engine->Logits(ids, write_row, 0, std::move(pictures)));
  KU_RETURN_IF_ERROR(written);
  KU_RETURN_IF_ERROR(out.Close());
  if (!not_finite.has_value()) return OkStatus();
  return Status(StatusCode::kInternal,
                "the logits of position " + std::to_string(*not_finite) + " are not finite; " +
                    options.out_path + " has all rows as they are",
                "try --dtype bf16 or fp32");
}

std::vector<Flag> Flags(Options& o) {
  return {
      MakeFlag("ids", &o.ids_path, "token ids separated by white space", {}, "FILE"),
      MakeFlag("out", &o.out_path, "float32 [T, vocab], one row per position", {}, "FILE.npy"),
      MakeFlag("image", &o.images, "a picture, in the order of its pads; repeatable", {}, "FILE"),
      MakeFlag("video", &o.videos, "frames, in the order of their pads; repeatable", {},
               "DIR_OR_GIF"),
      MakeFlag("video-fps", &o.fps, "frames per second of the videos",
               {.min = 0, .max = 1000, .above_min = true}),
      MakeFlag("image-scaling", ScalingChoices(&o.image.scaling),
               "version of Pillow whose scaling of pictures is followed to the bit"),
      MakeFlag("dump-image-embeds", &o.embeds_path,
               "float32 [tokens, (1 + K) * hidden] of all pictures: embeddings, and what is added "
               "after each of the first K layers",
               {}, "FILE.npy"),
      DeviceFlag(&o.config.device),
      TypeFlag(&o.config.dtype, "convert the weights (default: auto, as stored)"),
      HeadTypeFlag(&o.config.int8_head),
      ActivationTypeFlag(&o.config.int8_activations),
      MakeFlag("paged-attention", &o.config.paged, "paged KV cache instead of a contiguous one"),
      MakeFlag("page-size", &o.config.page_size, "tokens per page", {1, 256}),
      MakeFlag("chunk", &o.chunk, "tokens per step (default: up to 512)", {1, 1 << 20})};
}

}  // namespace
}  // namespace kuiper::tools

int main(int argc, char** argv) {
  kuiper::tools::Options options;
  return kuiper::tools::RunTool(
      argc, argv, {kuiper::tools::kUsage, kuiper::tools::Flags(options), 1, 1},
      [&](const auto& args) { return kuiper::tools::Run(args, options); });
}
