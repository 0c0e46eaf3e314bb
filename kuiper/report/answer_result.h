// One answer and what is to be said of it: the source of its JSON and of its statistics.
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
  // "image 0", "video 1": by its place among all.
  std::string Title(size_t place) const;
  // "cat.jpg, 1024x768 -> 1024x768, 768 tokens"
  std::string Describe() const;

  std::string source;
  int width = 0, height = 0;                // pixels before scaling
  int scaled_width = 0, scaled_height = 0;  // and behind it
  int num_frames = 0;                       // of a video that it is shown at; 0: an image
  int64_t patches = 0, tokens = 0;
};

// Everything the outputs say about one answer.
struct AnswerResult {
  Status status;  // why there is no answer, or why it ended early (KV cache full)
  Completion completion;
  std::vector<Completion> more;  // the answers after the first
  bool is_beam_search = false;   // the answers have scores, and the first is the one to show
  std::string model;
  double load_ms = 0;
  size_t weight_bytes_per_token = 0;
  int64_t request = 0;  // the engine's number
  // Absent: nothing ran.
  std::optional<KvStats> kv;
  std::optional<RunFacts> ran;
  std::vector<PictureFacts> pictures;  // of the whole prompt
  double picture_ms = 0;               // reading and scaling those that are not from turns before
  int64_t pictures_encoded = 0;        // by the vision tower: those whose rows were not kept
  double encode_ms = 0;
  int dropped_turns = 0;
  int dropped_tokens = 0;

  // Whether there is an answer to show; a full KV cache may still have produced one.
  bool ok() const;
  // One of the answers was ended from outside.
  bool is_interrupted() const;

  double prefill_tps() const;
  // Steps per second: the first token is the prefill's.
  double decode_tps() const;
  double decode_gbps() const;  // weights read per second
};

}  // namespace kuiper
