// --dry-run: the memory that the model would need, and the context that the memory could hold, as a
// table or, with -o json, as an object.
#include "demo/tasks.h"
#include "kuiper/command_line/exit_code.h"
#include "kuiper/report/memory_json.h"

namespace kuiper::demo {
namespace {

// Returns the facts of the given images and videos, such as their numbers of tokens.
StatusOr<std::vector<PictureFacts>> Pictures(const ProgramRun& run) {
  Message message;
  KU_ASSIGN_OR_RETURN(message.parts, ReadMedia(run, {.media = run.options.media}));
  std::vector<PictureFacts> facts;
  if (run.pictures == nullptr) return facts;
  KU_ASSIGN_OR_RETURN(const auto inputs, run.pictures->Of({message}));
  for (const VisionInput* input : inputs) facts.emplace_back(*input);
  return facts;
}

std::string PictureLines(const std::vector<PictureFacts>& pictures) {
  std::string lines = pictures.empty() ? "" : "\n";
  for (size_t i = 0; i < pictures.size(); ++i) {
    lines += "  " + pictures[i].Title(i) + ": " + pictures[i].Describe() + ", " +
             std::to_string(pictures[i].patches) + " patches\n";
  }
  return lines;
}

}  // namespace

StatusOr<int> RunDryRun(ProgramRun& run) {
  const Options& options = run.options;
  KU_ASSIGN_OR_RETURN(const std::vector<PictureFacts> pictures, Pictures(run));
  KU_ASSIGN_OR_RETURN(const MemoryTable table,
                      Engine::PlanTable(ForPictures(run, options.engine), *run.model));
  const std::string model = ModelName(options.engine.model_path);
  run.console.Answer(options.json() ? MemoryJson(table, model, pictures, FlagName) + "\n"
                                    : table.Describe() + PictureLines(pictures));
  if (table.fits.ok()) return kExitOk;
  run.console.Error(table.fits);
  return ExitCodeOf(table.fits.code());
}

}  // namespace kuiper::demo
