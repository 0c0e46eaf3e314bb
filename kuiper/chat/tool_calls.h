// The tool calls in an answer. Two forms are known: Hermes (Qwen2.5, Qwen3), where a block between
// tags holds {"name": ..., "arguments": {...}}, and XML (Qwen3-Coder), where it holds
// <function=NAME><parameter=KEY>VALUE</parameter></function>. A block that is no call stays text,
// as the model wrote it. What comes out does not depend on how the text is cut into pieces.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/json.h"

namespace kuiper {

// How a model writes calls.
struct ToolCallForm {
  enum class Kind { kHermes, kXml };
  Kind kind = Kind::kHermes;
  std::string open = "<tool_call>";
  std::string close = "</tool_call>";
};

// The form of a model whose template writes this call; absent when it is neither. `open` and
// `close`: the tags around it.
std::optional<ToolCallForm> FindToolCallForm(const std::string& call, const std::string& open,
                                             const std::string& close);

enum class StringKind { kAlways, kOrNull };  // of kOrNull, "null" is no text
// Functions -> their parameters that take strings. Values of the XML form have no types, so these
// stay text, whatever they look like.
using StringParameters =
    std::map<std::string, std::map<std::string, StringKind, std::less<>>, std::less<>>;
// Of OpenAI's "tools".
StringParameters StringParametersOf(const JsonNode& tools);

struct ParsedToolCall {
  std::string name;
  std::string arguments;  // an object in JSON: the Hermes form's own text

  bool operator==(const ParsedToolCall&) const = default;
};

class ToolCallParser {
 public:
  // What was decided, texts and calls each in their order.
  struct Delta {
    std::string text;
    std::vector<ParsedToolCall> calls;
  };

  explicit ToolCallParser(ToolCallForm form, StringParameters strings = {})
      : form_(std::move(form)), strings_(std::move(strings)) {}

  Delta Push(std::string_view text);
  // The rest. Call once, at the end.
  Delta Finish();

 private:
  // Takes what it can from the front of rest_; false when it needs more text.
  bool TakeText(bool at_end, Delta* delta);
  bool TakeBlock(bool at_end, Delta* delta);
  void Emit(std::string_view text, Delta* delta);
  std::optional<ParsedToolCall> ReadBlock(std::string_view block) const;

  const ToolCallForm form_;
  const StringParameters strings_;
  std::string rest_;       // not decided yet
  bool in_block_ = false;  // rest_ begins with the open tag
  size_t searched_ = 0;    // of rest_: no end of the block before it
  int num_tried_ = 0;      // closing tags that did not end the block
  std::string spaces_;     // held back: they are dropped next to a call
  bool after_call_ = false;
};

}  // namespace kuiper
