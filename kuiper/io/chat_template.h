// Messages -> the prompt a model was trained on, equal to the official Jinja templates to the byte.
// Control tokens come from the template only; what users type is encoded as text. Reading messages
// from JSON is messages_json.h, taking answers apart is thinking.h.
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

enum class ChatFamily {
  kNone,  // no chat template (e.g. the Llama stories): message texts are simply joined
  kQwen25,
  kQwen3,
  kQwen3VL,
};

// From model_type of config.json: "qwen2", "qwen3", "qwen3_vl"; anything else is kNone.
ChatFamily ChatFamilyOf(std::string_view model_type);

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
  // Of what a path or URL names, as HexText; "" = whatever it holds.
  std::string digest = {};
  std::optional<double> fps = {};  // of a video's frames; absent: as the file says
};

struct Message {
  Role role = Role::kUser;
  std::string text = {};
  // Of an assistant; absent: taken from <think> in the text.
  std::optional<std::string> reasoning = {};
  std::vector<ToolCall> tool_calls = {};  // of an assistant
  std::vector<ContentPart> parts = {};    // when not empty: the content instead of `text`
  // Of an assistant, when not empty: the message is encoded as these and not by its text.
  std::vector<int32_t> ids = {};
  // The JSON object it was read from, with what the fields above do not hold; null: there is none.
  JsonNode source = {};
};

struct ChatOptions {
  bool add_generation_prompt = true;
  // The prompt ends with the text of the last message, an assistant's; add_generation_prompt does
  // not count then.
  bool continue_final_message = false;
  std::optional<bool> enable_thinking;    // absent: the template's own behaviour
  std::vector<std::string> tools_json;    // one JSON object each, as PythonJson() prints it
  bool keep_thinking_in_history = false;  // Qwen3: earlier turns keep their <think> block
  bool add_vision_id = false;             // Qwen3-VL: "Picture 1: " before each image
  bool default_system = true;             // false: Qwen2.5 has no system message of its own
  // Only a model's own template reads these (chat/prompt_template.h).
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

// Fails when a message holds what the family cannot take (an image for a text model).
StatusOr<std::vector<Segment>> RenderSegments(ChatFamily family,
                                              const std::vector<Message>& messages,
                                              const ChatOptions& options);
// The segments joined: what Hugging Face's apply_chat_template(tokenize=False) returns.
StatusOr<std::string> RenderText(ChatFamily family, const std::vector<Message>& messages,
                                 const ChatOptions& options);
bool HasMedia(const Message& message);
// The text parts joined, without images.
std::string TextOf(const Message& message);
// `text` of an assistant: its own `tags` are control segments, all else is data.
void AppendModelText(std::string_view text, const std::vector<std::string_view>& tags,
                     std::vector<Segment>* segments);
// <think>, <tool_call> and their ends.
const std::vector<std::string_view>& ModelTags();
// Joins what is alike with the last segment.
void AppendSegment(std::string_view text, bool is_control, std::vector<Segment>* segments);
std::string JoinSegments(const std::vector<Segment>& segments);

// Equal to encoding the joined text, except that data never yields an added token. The text on each
// side of `ids` is encoded by itself.
std::vector<int32_t> EncodeChat(const Tokenizer& tokenizer, const std::vector<Segment>& segments);

}  // namespace kuiper
