// One answer: conversation -> prompt ids -> engine -> text on stdout, numbers on stderr. Shared by
// one-shot runs and chats, so that both keep the same contract.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "demo/console.h"
#include "demo/kv_watch.h"
#include "demo/options.h"
#include "demo/run_samples.h"
#include "demo/text_writer.h"
#include "kuiper/chat/conversation.h"
#include "kuiper/engine/engine.h"

namespace kuiper::demo {

struct ProgramRun;

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
struct Result {
  Status status;  // why there is no answer, or why it ended early (KV cache full)
  Completion completion;
  std::vector<Completion> more;  // --num-samples, --beam-width: the answers after the first
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
  int exit_code() const;

  double prefill_tps() const;
  // Steps per second: the first token is the prefill's.
  double decode_tps() const;
  double decode_gbps() const;  // weights read per second
};

class Answerer {
 public:
  Answerer(const ProgramRun& run, Engine& engine);

  // Generates and prints. Errors are printed too, as the output format wants them.
  Result Answer(StatusOr<Prompt> prompt, const Request& parameters, bool show_thinking);

  // Files of the options: --dump-tokens, --dump-logits. Prints errors; false if there was one.
  bool WriteDumps(const Result& result);

 private:
  void TakeFacts(const Prompt& prompt, Result* result) const;
  // What nobody can see from the answer: text that slid away, a seed that was drawn.
  void NoteSurprises(const Completion& completion, const Request& parameters) const;
  // What to raise where answers ended by a limit.
  void WarnOfCut(const Result& result, const Request& parameters) const;
  void TakeAnswers(StatusOr<std::vector<Completion>> completions, Result* result) const;
  void Log(const char* when) const;
  TextStyle StyleOf(const Request& parameters, bool show_thinking) const;
  // While nothing of the answer can be seen: how far it is.
  void ShowPrompt(int64_t request, size_t prompt_tokens);
  void ShowHidden(const TextStyle& style, const Completion& so_far);
  void PrintJson(const Result& result);
  void PrintStatistics(const Result& result);
  void Finish(Result* result);

  const Options& options_;
  Engine& engine_;
  Console& console_;
  bool stream_;
  KvWatch* watch_;  // null where no answer is printed
  PictureReader* pictures_;
  std::string model_;
  bool stats_file_begun_ = false;
};

}  // namespace kuiper::demo
