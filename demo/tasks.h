// The tasks of a text program that are no chat. Each takes a checked Options, prints its result,
// and returns the exit code; errors come back as Status and are printed by the caller.
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

// What all tasks of one run share.
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

// `config` with memory for the pictures that this run may see, and no more.
EngineConfig ForPictures(const ProgramRun& run, EngineConfig config);

// Creates the engine with a progress line and logs what was chosen. It takes run.model and
// run.tokenizer; when they are gone, both are read once more.
StatusOr<std::unique_ptr<Engine>> LoadEngine(ProgramRun& run, const EngineConfig& config);

// Ends the program (Fatal) if somebody wrote to weights that it reads where their file is mapped.
void EndIfFilesChanged(const Engine& engine);

// What a run does before it reads weights: opens the model, chooses the device, reads the
// tokenizer.
Status OpenConfiguration(ProgramRun& run);

// The conversation a run starts with: --session, --messages, --system-prompt, with its pictures.
StatusOr<Conversation> StartConversation(const ProgramRun& run, const PromptInput& input);
// The images and videos of `input` itself, read. kInput.
StatusOr<std::vector<ContentPart>> ReadMedia(const ProgramRun& run, const PromptInput& input);
// `input` may be part of a batch.
TemplateOptions ChatTemplateOf(const ProgramRun& run, const PromptInput& input);

// Reads the model's chat template, or with --raw the default of its family, and logs what it says
// about the model.
Status ReadChatTemplate(ProgramRun& run);

// Whether answers are printed as they come: by default where somebody watches.
bool Streams(const ProgramRun& run);

StatusOr<int> RunAnswer(ProgramRun& run, const PromptInput& input);
StatusOr<int> RunTokenize(ProgramRun& run, const PromptInput& input);
// Prints the prompt's text.
StatusOr<int> RunPrintPrompt(ProgramRun& run, const PromptInput& input);
StatusOr<int> RunVerifyPaged(ProgramRun& run, const PromptInput& input);
StatusOr<int> RunBenchmark(ProgramRun& run);
StatusOr<int> RunDryRun(ProgramRun& run);
// How well configurations predict a text (eval.cpp).
StatusOr<int> RunEval(ProgramRun& run);
// Makes a quantised model directory (quantize.cpp).
StatusOr<int> RunQuantize(ProgramRun& run);
// Answers the requests of a file into another (batch_run.cpp).
StatusOr<int> RunBatch(ProgramRun& run);
// Answers over HTTP until a signal comes (serve.cpp).
StatusOr<int> RunServe(ProgramRun& run);

// Of the model and of every flag that an answer depends on, so that answers of different settings
// can be told apart (batch_run.cpp). Before the engine takes the model.
std::string Fingerprint(const ProgramRun& run);

}  // namespace kuiper::demo
