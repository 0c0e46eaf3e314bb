#include "demo/run_samples.h"

#include <utility>

#include "kuiper/command_line/signals.h"

namespace kuiper::demo {

StatusOr<std::vector<Completion>> RunSamples(Engine& engine, Request request,
                                             const std::function<bool(const TokenEvent&)>& on_event,
                                             const std::function<void(int64_t)>& on_prompt) {
  InterruptScope interrupt;
  const int num_samples = request.num_samples;
  KU_ASSIGN_OR_RETURN(const int64_t id, engine.Add(std::move(request)));
  // Between the steps of a long prompt there are no events, but Ctrl-C must still work.
  bool begun = false;
  while (engine.HasWork()) {
    if (interrupt.interrupted()) engine.Abort(id);
    if (!begun && on_prompt) on_prompt(id);
    for (const TokenEvent& event : engine.Step()) {
      begun = true;
      if (!on_event(event)) engine.Abort(id);
    }
  }
  std::vector<Completion> completions;
  for (int i = 0; i < num_samples; ++i) {
    KU_ASSIGN_OR_RETURN(completions.emplace_back(), engine.Take(id, i));
  }
  return completions;
}

}  // namespace kuiper::demo
