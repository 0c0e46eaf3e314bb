#include "kuiper/io/chat_template.h"

#include <algorithm>
#include <utility>

#include "kuiper/base/json.h"

namespace kuiper {
namespace {

constexpr char kQwen25System[] =
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";
constexpr char kToolsHead[] =
    "# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are "
    "provided with function signatures within <tools></tools> XML tags:\n<tools>";
constexpr char kToolsTail[] =
    "\n</tools>\n\nFor each function call, return a json object with function name and arguments "
    "within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, "
    "\"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n";
constexpr std::string_view kThinkOpen = "<think>";
constexpr std::string_view kThinkClose = "</think>";

std::string_view LeftStripNewlines(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
  return text;
}

std::string_view RightStripNewlines(std::string_view text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

// text.split(separator)[0] and [-1] of Python.
std::string_view BeforeFirst(std::string_view text, std::string_view separator) {
  return text.substr(0, text.find(separator));
}
std::string_view AfterLast(std::string_view text, std::string_view separator) {
  const size_t at = text.rfind(separator);
  return at == std::string_view::npos ? text : text.substr(at + separator.size());
}

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

class Renderer {
 public:
  Renderer(ChatFamily family, const std::vector<Message>& messages, const ChatOptions& options)
      : family_(family), messages_(messages), options_(options) {}

  std::vector<Segment> Run() {
    RenderHead();
    const size_t last_query = LastQueryIndex();
    for (size_t i = 0; i < messages_.size(); ++i) {
      const Message& message = messages_[i];
      switch (message.role) {
        case Role::kSystem:
          // The first one is part of the head; Qwen3-VL's template drops later ones.
          if (i > 0 && family_ != ChatFamily::kQwen3VL) RenderPlain(message);
          break;
        case Role::kUser:
          RenderPlain(message);
          break;
        case Role::kAssistant:
          RenderAssistant(i, last_query);
          break;
        case Role::kTool:
          RenderTool(i);
          break;
      }
    }
    if (options_.add_generation_prompt && !options_.continue_final_message) {
      Control("<|im_start|>assistant\n");
      if (family_ == ChatFamily::kQwen3 && !options_.enable_thinking.value_or(true)) {
        Control("<think>\n\n</think>\n\n");
      }
    }
    return std::move(segments_);
  }

 private:
  void Control(std::string_view text) { AppendSegment(text, true, &segments_); }
  void Data(std::string_view text) { AppendSegment(text, false, &segments_); }
  // Text of the model: its own tags are tokens, control tokens it only spelled are not.
  void ModelText(std::string_view text) { AppendModelText(text, ModelTags(), &segments_); }

  void RenderHead() {
    const bool qwen25 = family_ == ChatFamily::kQwen25;
    const bool has_system = messages_[0].role == Role::kSystem;
    const bool has_default = qwen25 && options_.default_system;
    const bool has_tools = !options_.tools_json.empty();
    if (!has_tools && !has_system && !has_default) return;
    Control("<|im_start|>system\n");
    if (has_system) {
      Data(TextOf(messages_[0]));
    } else if (has_default) {
      Control(kQwen25System);
    }
    if (!has_tools) {
      Control("<|im_end|>\n");
      return;
    }
    if (has_system || qwen25) Control("\n\n");
    Control(kToolsHead);
    for (const std::string& tool : options_.tools_json) {
      Control("\n");
      Data(tool);
    }
    Control(kToolsTail);
  }

  // The latest user message that is no wrapped tool response. Turns after it keep their thinking.
  size_t LastQueryIndex() const {
    for (size_t i = messages_.size(); i-- > 0;) {
      if (messages_[i].role != Role::kUser) continue;
      const std::string text = TextOf(messages_[i]);
      if (!text.starts_with("<tool_response>") || !text.ends_with("</tool_response>")) return i;
    }
    return messages_.size() - 1;
  }

  void RenderContent(const Message& message) {
    if (message.parts.empty()) Data(message.text);
    for (const ContentPart& part : message.parts) {
      switch (part.kind) {
        case ContentPart::Kind::kText:
          Data(part.text);
          break;
        case ContentPart::Kind::kImage:
          ++num_images_;
          if (options_.add_vision_id) Control("Picture " + std::to_string(num_images_) + ": ");
          Control("<|vision_start|><|image_pad|><|vision_end|>");
          break;
        case ContentPart::Kind::kVideo:
          ++num_videos_;
          if (options_.add_vision_id) Control("Video " + std::to_string(num_videos_) + ": ");
          Control("<|vision_start|><|video_pad|><|vision_end|>");
          break;
      }
    }
  }

  void RenderPlain(const Message& message) {
    Control("<|im_start|>" + std::string(RoleName(message.role)) + "\n");
    RenderContent(message);
    Control("<|im_end|>\n");
  }

  void RenderAssistant(size_t index, size_t last_query) {
    const Message& message = messages_[index];
    const bool has_ids = !message.ids.empty();
    const std::string content = has_ids ? "" : TextOf(message);
    std::string_view answer = content;
    Control("<|im_start|>assistant");
    if (family_ == ChatFamily::kQwen25) {
      // With tool calls an empty text leaves no empty line.
      if (message.tool_calls.empty() || has_ids || !content.empty()) Control("\n");
      ModelText(content);
    } else {
      Control("\n");
      const bool block =
          family_ == ChatFamily::kQwen3 && RenderThinking(index, last_query, &answer);
      ModelText(block ? LeftStripNewlines(answer) : answer);
    }
    if (has_ids) segments_.push_back({"", false, message.ids});
    bool newline = family_ == ChatFamily::kQwen25 || has_ids || !answer.empty();
    for (const ToolCall& call : message.tool_calls) {
      if (newline) Control("\n");
      newline = true;
      RenderToolCall(call);
    }
    Control("<|im_end|>\n");
  }

  // Takes the thinking out of `*answer` and writes the block, if this turn shows one.
  bool RenderThinking(size_t index, size_t last_query, std::string_view* answer) {
    const Message& message = messages_[index];
    const std::string_view content = *answer;
    std::string_view reasoning;
    const bool has_reasoning = message.reasoning.has_value() && message.ids.empty();
    const bool in_text = !has_reasoning && Contains(content, kThinkClose);
    if (has_reasoning) {
      reasoning = *message.reasoning;
    } else if (in_text) {
      reasoning = LeftStripNewlines(
          AfterLast(RightStripNewlines(BeforeFirst(content, kThinkClose)), kThinkOpen));
      *answer = LeftStripNewlines(AfterLast(content, kThinkClose));
    }
    const bool last = index + 1 == messages_.size();
    const bool by_template = index > last_query && (last || !reasoning.empty());
    const bool kept = options_.keep_thinking_in_history && (has_reasoning || in_text);
    if (!by_template && !kept) return false;
    Control("<think>\n");
    ModelText(RightStripNewlines(LeftStripNewlines(reasoning)));
    Control("\n</think>\n\n");
    return true;
  }

  void RenderToolCall(const ToolCall& call) {
    Control("<tool_call>\n{\"name\": \"");
    Data(call.name);
    Control("\", \"arguments\": ");
    // Qwen2.5's template prints a string as JSON, the others print it as it is.
    const bool quote = call.arguments_are_text && family_ == ChatFamily::kQwen25;
    Data(quote ? PythonJsonString(call.arguments_json) : call.arguments_json);
    Control("}\n</tool_call>");
  }

  // Neighbouring tool messages form one user turn.
  void RenderTool(size_t index) {
    const auto is_tool = [&](size_t i) {
      return i < messages_.size() && messages_[i].role == Role::kTool;
    };
    if (index == 0 || !is_tool(index - 1)) Control("<|im_start|>user");
    Control("\n<tool_response>\n");
    RenderContent(messages_[index]);
    Control("\n</tool_response>");
    if (!is_tool(index + 1)) Control("<|im_end|>\n");
  }

  const ChatFamily family_;
  const std::vector<Message>& messages_;
  const ChatOptions& options_;
  std::vector<Segment> segments_;
  int num_images_ = 0;
  int num_videos_ = 0;
};

Status CheckMessages(ChatFamily family, const std::vector<Message>& messages) {
  if (messages.empty()) return Status(StatusCode::kInput, "there are no messages");
  for (size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    if (!HasMedia(message)) continue;
    const std::string where = "message " + std::to_string(i) + " holds an image, but ";
    if (family != ChatFamily::kQwen3VL) {
      return Status(StatusCode::kInput, where + "the model takes text only");
    }
    if (message.role != Role::kUser && message.role != Role::kTool) {
      return Status(StatusCode::kInput, where + "only user and tool messages may");
    }
  }
  return OkStatus();
}

}  // namespace

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
  static const std::vector<std::string_view> tags = {kThinkOpen, kThinkClose, "<tool_call>",
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

ChatFamily ChatFamilyOf(std::string_view model_type) {
  if (model_type == "qwen2") return ChatFamily::kQwen25;
  if (model_type == "qwen3") return ChatFamily::kQwen3;
  if (model_type == "qwen3_vl") return ChatFamily::kQwen3VL;
  return ChatFamily::kNone;
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

StatusOr<std::vector<Segment>> RenderSegments(ChatFamily family,
                                              const std::vector<Message>& messages,
                                              const ChatOptions& options) {
  KU_RETURN_IF_ERROR(CheckMessages(family, messages));
  if (family != ChatFamily::kNone) {
    std::vector<Segment> prompt = Renderer(family, messages, options).Run();
    constexpr std::string_view kEndOfTurn = "<|im_end|>\n";
    if (options.continue_final_message && prompt.back().text.ends_with(kEndOfTurn)) {
      prompt.back().text.erase(prompt.back().text.size() - kEndOfTurn.size());
    }
    return prompt;
  }
  std::vector<Segment> segments;
  segments.reserve(messages.size());
  for (const Message& message : messages) {
    segments.push_back({message.ids.empty() ? TextOf(message) : "", false, message.ids});
  }
  return segments;
}

StatusOr<std::string> RenderText(ChatFamily family, const std::vector<Message>& messages,
                                 const ChatOptions& options) {
  KU_ASSIGN_OR_RETURN(const std::vector<Segment> segments,
                      RenderSegments(family, messages, options));
  return JoinSegments(segments);
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
