// Generates one answer: conversation -> prompt ids -> engine -> text on stdout, numbers on stderr.
// One-shot runs and chats share this code, so that both keep the same contract.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "demo/console.h"
#include "demo/options.h"
#include "demo/run_samples.h"
#include "kuiper/chat/conversation.h"
#include "kuiper/engine/engine.h"
#include "kuiper/report/answer_result.h"
#include "kuiper/report/kv_watch.h"
#include "kuiper/report/text_writer.h"

namespace kuiper::demo {

struct ProgramRun;

int ExitCodeOf(const AnswerResult& result);

class Answerer {
 public:
  Answerer(const ProgramRun& run, Engine& engine);

  // Generates and prints. Errors are printed too, in the output format.
  AnswerResult Answer(StatusOr<Prompt> prompt, const Request& parameters, bool show_thinking);

  // Writes the files of --dump-tokens and --dump-logits. Prints errors; returns false if there was
  // one.
  bool WriteDumps(const AnswerResult& result);

 private:
  void TakeFacts(const Prompt& prompt, AnswerResult* result) const;
  // Notes facts that the answer does not show: text that a context shift dropped, a random seed.
  void NoteHiddenFacts(const Completion& completion, const Request& parameters) const;
  // For answers ended by a limit, says which limit to raise and what else may help.
  void WarnOfCut(const AnswerResult& result, const Request& parameters) const;
  void TakeAnswers(StatusOr<std::vector<Completion>> completions, AnswerResult* result) const;
  void Log(const char* when) const;
  void Write(std::string_view text);
  TextStyle StyleOf(const Request& parameters, bool show_thinking) const;
  // Show progress while nothing of the answer is visible.
  void ShowPrompt(int64_t request, size_t prompt_tokens);
  void ShowHidden(const TextStyle& style, const Completion& so_far);
  void PrintJson(const AnswerResult& result);
  void PrintStatistics(const AnswerResult& result);
  void Finish(AnswerResult* result);

  const Options& options_;
  Engine& engine_;
  Console& console_;
  bool stream_;
  KvWatch* watch_;  // null if no answer is printed
  PictureReader* pictures_;
  std::string model_;
  bool stats_file_begun_ = false;
};

}  // namespace kuiper::demo
