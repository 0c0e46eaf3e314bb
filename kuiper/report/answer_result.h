// One answer with its facts: the source of its JSON and of its statistics.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/engine/engine.h"

namespace kuiper {

// An image or video of a prompt.
struct PictureFacts {
  explicit PictureFacts(const VisionInput& input);
  // Returns "image 0", "video 1": the number is its index among all images and videos.
  std::string Title(size_t place) const;
  // Returns "cat.jpg, 1024x768 -> 1024x768, 768 tokens".
  std::string Describe() const;

  std::string source;
  int width = 0, height = 0;                // pixels before scaling
  int scaled_width = 0, scaled_height = 0;  // pixels after scaling
  int num_frames = 0;                       // sampled frames of a video; 0: an image
  int64_t patches = 0, tokens = 0;
};

// Everything that the outputs report about one answer.
struct AnswerResult {
  Status status;  // why there is no answer, or why it ended early (KV cache full)
  Completion completion;
  std::vector<Completion> more;  // further answers after the first
  bool is_beam_search = false;   // the answers have scores; the first one is shown
  std::string model;
  double load_ms = 0;
  size_t weight_bytes_per_token = 0;
  int64_t request = 0;  // request id of the engine
  // Absent if nothing ran.
  std::optional<KvStats> kv;
  std::optional<RunFacts> ran;
  std::vector<PictureFacts> pictures;  // all images and videos of the prompt
  // Time to read and scale the images and videos that earlier turns did not read.
  double picture_ms = 0;
  int64_t pictures_encoded = 0;  // encoded by the vision encoder: those not found in the cache
  double encode_ms = 0;
  int dropped_turns = 0;
  int dropped_tokens = 0;

  // True if there is an answer to show; also if generation ended early because the KV cache was
  // full.
  bool ok() const;
  // True if one of the answers was stopped from outside.
  bool is_interrupted() const;

  double prefill_tps() const;
  // Steps per second; the first token belongs to the prefill.
  double decode_tps() const;
  double decode_gbps() const;  // weights read per second
};

}  // namespace kuiper
