// The messages of a chat, and the rendered prompt as segments: text of the template, in which
// control tokens count, and data, in which they do not. chat/prompt_template.h renders,
// messages_json.h reads messages from JSON, and thinking.h takes answers apart.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"
#include "kuiper/io/tokenizer.h"

namespace kuiper {

enum class Role { kSystem, kUser, kAssistant, kTool };
std::string_view RoleName(Role role);

struct ToolCall {
  std::string name;
  std::string arguments_json;       // JSON text, or the text itself if `arguments_are_text`
  bool arguments_are_text = false;  // they came as a JSON string, as OpenAI sends them
};

struct ContentPart {
  enum class Kind { kText, kImage, kVideo };
  Kind kind = Kind::kText;
  std::string text =
      {};  // kText: the text; else the path or URL, "" when the caller holds the data
  // Expected digest (HexText) of the image file or the video's frames; "" accepts any.
  std::string digest = {};
  std::optional<double> fps = {};  // frames per second of a video; absent: as the file says
};

struct Message {
  Role role = Role::kUser;
  std::string text = {};
  // Reasoning of an assistant; if absent, the template looks for it in the text.
  std::optional<std::string> reasoning = {};
  std::vector<ToolCall> tool_calls = {};  // calls that an assistant made
  std::vector<ContentPart> parts = {};    // if not empty, the content instead of `text`
  // Token ids of an assistant's message. If not empty, they are encoded instead of its text.
  std::vector<int32_t> ids = {};
  // The JSON object that the message was read from, with fields that the members above do not hold,
  // or null.
  JsonNode source = {};
};

struct ChatOptions {
  bool add_generation_prompt = true;
  // The prompt ends with the text of the last message, which an assistant wrote, and
  // add_generation_prompt has no effect.
  bool continue_final_message = false;
  std::optional<bool> enable_thinking;    // absent: the template's own behaviour
  std::vector<std::string> tools_json;    // one JSON object each, as PythonJson() prints it
  bool keep_thinking_in_history = false;  // answers of earlier turns keep their reasoning
  bool add_vision_id = false;             // Qwen3-VL: "Picture 1: " before each image
  // False removes the block of an empty system message, which a template writes that has a system
  // message of its own.
  bool default_system = true;
  JsonNode documents = {};        // a list, or null
  JsonNode template_kwargs = {};  // an object, or null
};

// Template text (is_control) and data. Added tokens are recognised in control segments only.
// <think> and <tool_call> tags inside an assistant's text are the model's own: control segments.
struct Segment {
  std::string text;
  bool is_control = false;
  std::vector<int32_t> ids = {};  // when not empty: these tokens, instead of a text
};

bool HasMedia(const Message& message);
// Joins the text parts, without images.
std::string TextOf(const Message& message);
// Appends text that an assistant wrote: its own `tags` become control segments, all else data.
void AppendModelText(std::string_view text, const std::vector<std::string_view>& tags,
                     std::vector<Segment>* segments);
// <think>, <tool_call> and their ends.
const std::vector<std::string_view>& ModelTags();
// Appends text to the last segment if that is of the same kind, or else as a new segment.
void AppendSegment(std::string_view text, bool is_control, std::vector<Segment>* segments);
// What Hugging Face's apply_chat_template(tokenize=False) returns.
std::string JoinSegments(const std::vector<Segment>& segments);

// Equal to encoding the joined text, except that data never yields an added token. The text on each
// side of `ids` is encoded by itself.
std::vector<int32_t> EncodeChat(const Tokenizer& tokenizer, const std::vector<Segment>& segments);

}  // namespace kuiper
