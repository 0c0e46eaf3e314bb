#include "kuiper/report/answer_result.h"

#include <algorithm>

#include "kuiper/base/text.h"
#include "kuiper/report/number_text.h"

namespace kuiper {

PictureFacts::PictureFacts(const VisionInput& input)
    : source(input.source),
      width(input.width),
      height(input.height),
      scaled_width(input.grid.w * input.patch_size),
      scaled_height(input.grid.h * input.patch_size),
      num_frames(IsVideo(input) ? input.grid.t : 0),
      patches(input.grid.num_patches()),
      tokens(input.num_tokens()) {}

std::string PictureFacts::Title(size_t place) const {
  return (num_frames > 0 ? "video " : "image ") + std::to_string(place);
}

std::string PictureFacts::Describe() const {
  const std::string times = num_frames > 0 ? " x " + std::to_string(num_frames) : "";
  return Format("%s, %dx%d -> %dx%d%s, %s", source.c_str(), width, height, scaled_width,
                scaled_height, times.c_str(), Counted(tokens, "token").c_str());
}

bool AnswerResult::ok() const {
  if (status.ok()) return true;
  return completion.finish == FinishReason::kContext && !completion.tokens.empty();
}

bool AnswerResult::is_interrupted() const {
  const auto interrupted = [](const Completion& c) { return c.finish == FinishReason::kInterrupt; };
  return interrupted(completion) || std::any_of(more.begin(), more.end(), interrupted);
}

double AnswerResult::prefill_tps() const {
  return PerSecond(completion.prompt_tokens - completion.cached_tokens, completion.prefill_ms);
}

double AnswerResult::decode_tps() const {
  return PerSecond(static_cast<double>(completion.tokens.size()) - 1, completion.decode_ms);
}

double AnswerResult::decode_gbps() const {
  return decode_tps() * static_cast<double>(weight_bytes_per_token) / 1e9;
}

}  // namespace kuiper
