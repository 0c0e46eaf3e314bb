// Feeds a text with tool calls to the parser in pieces; for its tests and its fuzz target.
#pragma once

#include <string_view>
#include <utility>
#include <vector>

#include "kuiper/chat/tool_calls.h"

namespace kuiper::test {

// Returns all that the parser finds. The function f has a string parameter s, and a parameter o
// that also takes null.
inline ToolCallParser::Delta ParseCalls(ToolCallFormat::Kind kind,
                                        const std::vector<std::string_view>& pieces) {
  ToolCallParser parser({.kind = kind},
                        {{"f", {{"s", StringKind::kAlways}, {"o", StringKind::kOrNull}}}});
  ToolCallParser::Delta all;
  const auto add = [&](ToolCallParser::Delta delta) {
    all.text += delta.text;
    all.calls.insert(all.calls.end(), delta.calls.begin(), delta.calls.end());
  };
  for (const std::string_view piece : pieces) add(parser.Push(piece));
  add(parser.Finish());
  return all;
}

}  // namespace kuiper::test
