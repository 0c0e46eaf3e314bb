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
  bool indexed = false;  // JSON pieces say of which sample they are
  // Streamed reasoning is in half intensity, for eyes, instead of within tags.
  bool dim_thinking = false;
};

// What people see of an answer: "<think> reasoning\n</think>\n\nanswer". The newline after the tag
// is a space, so that the first line says something. The reasoning appears when it is asked for,
// and when there is no answer: generation ended inside the block or right behind it.
std::string VisibleText(const Completion& completion, bool show_thinking);

class TextWriter {
 public:
  using Out = std::function<void(std::string_view)>;

  TextWriter(TextStyle style, Out out) : style_(style), out_(std::move(out)) {}

  void OnEvent(const TokenEvent& event);
  // The rest of a text answer; whole JSON objects are the caller's business. Once per sample.
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
