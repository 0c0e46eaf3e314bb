// Renders a template with variables from JSON, for the tests of the interpreter.
#pragma once

#include <ctime>
#include <string_view>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"
#include "kuiper/jinja/template.h"

namespace kuiper::jinja {

struct Outcome {
  Status status;
  Refusal refusal;
  Rendered rendered;
};

// Saturday, 2026-11-21T12:34:56: the time with which the goldens were made.
inline std::tm GoldenTime() {
  std::tm now = {};
  now.tm_year = 126;
  now.tm_mon = 10;
  now.tm_mday = 21;
  now.tm_hour = 12;
  now.tm_min = 34;
  now.tm_sec = 56;
  now.tm_wday = 6;
  now.tm_yday = 324;
  return now;
}

// All strings of `variables` count as data.
inline Outcome Render(const Template& parsed, const JsonNode& variables, const Limits& limits = {},
                      size_t max_bytes = size_t{256} << 20) {
  Heap heap(max_bytes);
  Template::Variables values;
  for (size_t i = 0; i < variables.items.size(); ++i) {
    values.emplace_back(variables.keys[i], heap.FromJson(variables.items[i], kData));
  }
  Outcome outcome;
  StatusOr<Rendered> rendered =
      parsed.Render(values, GoldenTime(), limits, &heap, &outcome.refusal);
  outcome.status = rendered.status();
  if (rendered.ok()) outcome.rendered = std::move(*rendered);
  return outcome;
}

}  // namespace kuiper::jinja
