#include "kuiper/report/text_writer.h"

#include <nlohmann/json.hpp>

#include "kuiper/base/terminal_text.h"

namespace kuiper {
namespace {

constexpr char kOpen[] = "<think> ";
constexpr char kClose[] = "\n</think>\n\n";
constexpr char kBlankLine[] = "\n\n";

void AppendDelta(const char* field, const std::string& text, int index, std::string* lines) {
  if (text.empty()) return;
  nlohmann::ordered_json json = {{"type", "delta"}};
  if (index >= 0) json["index"] = index;
  json[field] = text;
  *lines += json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

std::string VisibleText(const Completion& completion, bool show_thinking) {
  const bool shown = show_thinking || completion.text.empty();
  const bool has_block = completion.inside_thinking || !completion.reasoning.empty();
  if (!has_block || !shown) return completion.text;
  return kOpen + completion.reasoning + (completion.inside_thinking ? "" : kClose) +
         completion.text;
}

void TextWriter::OnEvent(const TokenEvent& event) {
  if (style_.format == OutputFormat::kJsonLines) return StreamJson(event);
  if (style_.format != OutputFormat::kJson && style_.stream) StreamText(event);
}

void TextWriter::StreamJson(const TokenEvent& event) {
  std::string lines;
  const int index = style_.indexed ? event.sample : -1;
  AppendDelta("reasoning", event.reasoning, index, &lines);
  AppendDelta("text", event.text, index, &lines);
  out_(lines);
}

void TextWriter::StreamText(const TokenEvent& event) {
  std::string text;
  if (style_.show_thinking && !event.reasoning.empty()) {
    if (!opened_ && !style_.dim_thinking) text += kOpen;
    opened_ = true;
    text += style_.dim_thinking ? Dimmed(event.reasoning) : event.reasoning;
  }
  if (!event.text.empty()) {
    if (opened_ && !closed_) text += style_.dim_thinking ? kBlankLine : kClose;
    closed_ = true;
    text += event.text;
  }
  out_(text);
}

void TextWriter::Finish(const Completion& completion) {
  if (style_.format == OutputFormat::kJson || style_.format == OutputFormat::kJsonLines) return;
  if (style_.stream) {
    const bool open = opened_ && !closed_ && !completion.inside_thinking;
    if (open && !style_.dim_thinking) out_(kClose);
    if (!opened_ && !closed_) out_(VisibleText(completion, true));
    out_("\n");
    return;
  }
  const std::string text = VisibleText(completion, style_.show_thinking);
  if (style_.format == OutputFormat::kRaw) {
    out_(text + "\n");
  } else {
    out_("Assistant: " + text + (text.ends_with('\n') ? "" : "\n"));
  }
}

}  // namespace kuiper
