// Runs one request from a terminal, on an engine with no other requests: Ctrl-C ends it.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "kuiper/engine/engine.h"

namespace kuiper::demo {

// Runs a request to its end and returns one completion per sample. Ctrl-C ends it with
// FinishReason::kInterrupt; so does `on_event` by returning false. `on_prompt` is called with the
// request's id before each step until the first event.
StatusOr<std::vector<Completion>> RunSamples(Engine& engine, Request request,
                                             const std::function<bool(const TokenEvent&)>& on_event,
                                             const std::function<void(int64_t)>& on_prompt = {});

}  // namespace kuiper::demo
