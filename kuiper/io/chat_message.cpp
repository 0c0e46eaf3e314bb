#include "kuiper/io/chat_message.h"

#include <algorithm>
#include <utility>

namespace kuiper {
bool HasMedia(const Message& message) {
  return std::any_of(message.parts.begin(), message.parts.end(),
                     [](const ContentPart& p) { return p.kind != ContentPart::Kind::kText; });
}

std::string TextOf(const Message& message) {
  if (message.parts.empty()) return message.text;
  std::string text;
  for (const ContentPart& part : message.parts) {
    if (part.kind == ContentPart::Kind::kText) text += part.text;
  }
  return text;
}

const std::vector<std::string_view>& ModelTags() {
  static const std::vector<std::string_view> tags = {"<think>", "</think>", "<tool_call>",
                                                     "</tool_call>"};
  return tags;
}

void AppendSegment(std::string_view text, bool is_control, std::vector<Segment>* segments) {
  if (text.empty()) return;
  if (segments->empty() || segments->back().is_control != is_control ||
      !segments->back().ids.empty()) {
    segments->push_back({"", is_control});
  }
  segments->back().text += text;
}

void AppendModelText(std::string_view text, const std::vector<std::string_view>& tags,
                     std::vector<Segment>* segments) {
  while (!text.empty()) {
    size_t at = std::string_view::npos;
    std::string_view tag;
    for (std::string_view candidate : tags) {
      const size_t found = text.find(candidate);
      if (found < at) {
        at = found;
        tag = candidate;
      }
    }
    AppendSegment(text.substr(0, at), false, segments);
    if (at == std::string_view::npos) return;
    AppendSegment(tag, true, segments);
    text.remove_prefix(at + tag.size());
  }
}

std::string_view RoleName(Role role) {
  switch (role) {
    case Role::kSystem:
      return "system";
    case Role::kUser:
      return "user";
    case Role::kAssistant:
      return "assistant";
    case Role::kTool:
      return "tool";
  }
  return "";
}

std::string JoinSegments(const std::vector<Segment>& segments) {
  std::string text;
  for (const Segment& segment : segments) text += segment.text;
  return text;
}

std::vector<int32_t> EncodeChat(const Tokenizer& tokenizer, const std::vector<Segment>& segments) {
  std::vector<int32_t> ids;
  std::vector<TextPiece> pieces;
  const auto append = [&](const std::vector<int32_t>& more) {
    ids.insert(ids.end(), more.begin(), more.end());
  };
  const auto append_pieces = [&] {
    const bool after_added =
        ids.empty() || tokenizer.TokenId(tokenizer.Bytes(ids.back())) == ids.back();
    append(tokenizer.EncodePieces(pieces, !after_added));
    pieces.clear();
  };
  for (const Segment& segment : segments) {
    if (segment.ids.empty()) {
      pieces.push_back({segment.text, segment.is_control});
      continue;
    }
    append_pieces();
    append(segment.ids);
  }
  append_pieces();
  return ids;
}

}  // namespace kuiper
