// Parses the tool calls in an answer. A block between tags contains {"name": ..., "arguments":
// {...}} in the Hermes format (Qwen2.5, Qwen3), or
// <function=NAME><parameter=KEY>VALUE</parameter></function> in the XML format (Qwen3-Coder). A
// block that is not a call stays text, as the model wrote it. The result does not depend on how the
// text is cut into pieces.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/json.h"

namespace kuiper {

// The format in which a model writes calls.
struct ToolCallFormat {
  enum class Kind { kHermes, kXml };
  Kind kind = Kind::kHermes;
  std::string open = "<tool_call>";
  std::string close = "</tool_call>";
};

// Returns the format of a model whose template writes this `call` between the tags `open` and
// `close`; absent if it is neither format.
std::optional<ToolCallFormat> FindToolCallFormat(const std::string& call, const std::string& open,
                                                 const std::string& close);

enum class StringKind { kAlways, kOrNull };  // for kOrNull, "null" means null
// Function -> parameter -> kind, for parameters that take strings. The XML format has no types, so
// the values of these parameters stay text, whatever they look like.
using StringParameters =
    std::map<std::string, std::map<std::string, StringKind, std::less<>>, std::less<>>;
// Returns the string parameters of OpenAI's "tools".
StringParameters StringParametersOf(const JsonNode& tools);

struct ParsedToolCall {
  std::string name;
  std::string arguments;  // a JSON object; in the Hermes format, the model's own text

  bool operator==(const ParsedToolCall&) const = default;
};

class ToolCallParser {
 public:
  // The text and calls parsed so far, each in order.
  struct Delta {
    std::string text;
    std::vector<ParsedToolCall> calls;
  };

  explicit ToolCallParser(ToolCallFormat form, StringParameters strings = {})
      : form_(std::move(form)), strings_(std::move(strings)) {}

  Delta Push(std::string_view text);
  // Returns the remainder. Call once, at the end.
  Delta Finish();

 private:
  // Consume as much as possible from the front of rest_. Return false if they need more text.
  bool TakeText(bool at_end, Delta* delta);
  bool TakeBlock(bool at_end, Delta* delta);
  void Emit(std::string_view text, Delta* delta);
  std::optional<ParsedToolCall> ReadBlock(std::string_view block) const;

  const ToolCallFormat form_;
  const StringParameters strings_;
  std::string rest_;       // not parsed yet
  bool in_block_ = false;  // rest_ begins with the open tag
  size_t searched_ = 0;    // offset in rest_ before which the block does not end
  int num_tried_ = 0;      // closing tags that did not end the block
  std::string spaces_;     // trailing spaces held back: they are dropped next to a call
  bool after_call_ = false;
};

}  // namespace kuiper
