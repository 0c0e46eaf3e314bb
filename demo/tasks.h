// The tasks of a text program other than the chat. Each takes checked Options, prints its result,
// and returns the exit code. Errors are returned as Status and printed by the caller.
#pragma once

#include <memory>
#include <optional>

#include "demo/answer.h"
#include "demo/console.h"
#include "demo/options.h"
#include "demo/program.h"
#include "demo/prompt_source.h"
#include "demo/prompter.h"
#include "kuiper/engine/engine.h"
#include "kuiper/report/kv_watch.h"

namespace kuiper::demo {

// State that all tasks of one run share.
struct ProgramRun {
  const Program& program;
  Options& options;
  Console& console;
  std::optional<OpenedModel> model = {};             // until an engine takes it
  std::unique_ptr<Tokenizer> tokenizer = {};         // until the same engine takes it
  std::optional<PromptTemplate> chat_template = {};  // set by ReadChatTemplate
  std::unique_ptr<PictureReader> pictures = {};      // null: the model takes text only
  std::unique_ptr<KvWatch> watch = {};               // null where no request is answered
  std::string model_type = program.model_type;
  ContextLimits context = {};
};

// Returns `config` with exactly the memory for the images that this run may process.
EngineConfig ForPictures(const ProgramRun& run, EngineConfig config);

// Creates the engine with a progress line and logs what was chosen. Moves run.model and
// run.tokenizer into it; if they are already moved, reads both again.
StatusOr<std::unique_ptr<Engine>> LoadEngine(ProgramRun& run, const EngineConfig& config);

// Ends the program (Fatal) if a file whose weights are used in the mapping was written to.
void EndIfFilesChanged(const Engine& engine);

// Prepares a run before weights are read: opens the model, chooses the device, reads the tokenizer.
Status OpenConfiguration(ProgramRun& run);

// Returns the conversation that a run starts with: --session, --messages, --system-prompt, with its
// images and videos.
StatusOr<Conversation> StartConversation(const ProgramRun& run, const PromptInput& input);
// Reads the images and videos of `input` itself. Errors: kInput.
StatusOr<std::vector<ContentPart>> ReadMedia(const ProgramRun& run, const PromptInput& input);
// `input` may be one request of a batch.
TemplateOptions ChatTemplateOf(const ProgramRun& run, const PromptInput& input);

// Reads the model's chat template, or with --raw the default of its family, and logs what it says
// about the model.
Status ReadChatTemplate(ProgramRun& run);

// True if answers are streamed: by default on a terminal.
bool Streams(const ProgramRun& run);

StatusOr<int> RunAnswer(ProgramRun& run, const PromptInput& input);
StatusOr<int> RunTokenize(ProgramRun& run, const PromptInput& input);
// Prints the prompt's text.
StatusOr<int> RunPrintPrompt(ProgramRun& run, const PromptInput& input);
StatusOr<int> RunVerifyPaged(ProgramRun& run, const PromptInput& input);
StatusOr<int> RunBenchmark(ProgramRun& run);
StatusOr<int> RunDryRun(ProgramRun& run);
// Measures how well configurations predict a text (eval.cpp).
StatusOr<int> RunEval(ProgramRun& run);
// Makes a quantised model directory (quantize.cpp).
StatusOr<int> RunQuantize(ProgramRun& run);
// Answers the requests of one file and writes the answers to another (batch_run.cpp).
StatusOr<int> RunBatch(ProgramRun& run);
// Answers over HTTP until a signal comes (serve.cpp).
StatusOr<int> RunServe(ProgramRun& run);

// Identifies the model and every flag that an answer depends on, so that answers with different
// settings can be distinguished (batch_run.cpp). Call before the model is moved to the engine.
std::string Fingerprint(const ProgramRun& run);

}  // namespace kuiper::demo
