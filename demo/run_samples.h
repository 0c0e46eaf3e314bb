// One request on an engine that nobody else uses, from the terminal's point of view: Ctrl-C ends
// it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kuiper/engine/engine.h"

namespace kuiper::demo {

// Runs a request to its end, one completion per sample; Ctrl-C ends it with
// FinishReason::kInterrupt. `on_event` returning false ends it too. `on_prompt` is called with the
// id of the request before each step until there is an event.
StatusOr<std::vector<Completion>> RunSamples(Engine& engine, Request request,
                                             const std::function<bool(const TokenEvent&)>& on_event,
                                             const std::function<void(int64_t)>& on_prompt = {});

}  // namespace kuiper::demo
