// The text of an answer in each output format, streamed or whole.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "kuiper/engine/request.h"

namespace kuiper {

enum class OutputFormat { kText, kRaw, kJson, kJsonLines };

struct TextStyle {
  OutputFormat format = OutputFormat::kText;
  bool stream = false;
  bool show_thinking = false;
  bool indexed = false;  // JSON pieces include the index of their sample
  // Prints streamed reasoning dimmed instead of within tags.
  bool dim_thinking = false;
};

// Returns the text of an answer for users: "<think> reasoning\n</think>\n\nanswer". A space
// replaces the newline after the tag, so that the first line has content. The reasoning is included
// if requested, and if there is no answer because generation ended inside the block or right after
// it.
std::string VisibleText(const Completion& completion, bool show_thinking);

class TextWriter {
 public:
  using Out = std::function<void(std::string_view)>;

  TextWriter(TextStyle style, Out out) : style_(style), out_(std::move(out)) {}

  void OnEvent(const TokenEvent& event);
  // Writes the remainder of a text answer; the caller writes whole JSON objects. Call once per
  // sample.
  void Finish(const Completion& completion);

 private:
  void StreamText(const TokenEvent& event);
  void StreamJson(const TokenEvent& event);

  TextStyle style_;
  Out out_;
  bool opened_ = false;  // <think> was printed
  bool closed_ = false;  // </think> was printed
};

}  // namespace kuiper
