#include "kuiper/chat/conversation.h"

#include <algorithm>
#include <utility>

#include "kuiper/base/errors.h"
#include "kuiper/base/text.h"

namespace kuiper {
namespace {

Message TextMessage(Role role, const std::string& text) {
  Message message;
  message.role = role;
  message.text = text;
  return message;
}

// Kept reasoning is part of the ids, so they hold more than the template prints.
bool KeepsThinking(const TemplateOptions& options) {
  return options.keep_thinking && !options.chat_template->facts().before_reasoning.empty();
}

ChatOptions OptionsOf(const TemplateOptions& options) {
  ChatOptions chat;
  chat.add_generation_prompt = options.add_generation_prompt;
  chat.continue_final_message = options.continue_final_message;
  chat.enable_thinking = options.think;
  chat.tools_json = options.tools_json;
  chat.keep_thinking_in_history = options.keep_thinking;
  chat.documents = options.documents;
  chat.template_kwargs = options.template_kwargs;
  return chat;
}

// The error for a message with a picture if the model takes text only.
Status NoPictures(size_t message) {
  return Status(StatusCode::kInput, "message " + std::to_string(message) +
                                        " holds an image, but the model takes text only");
}

size_t FirstWithMedia(const std::vector<Message>& messages) {
  return std::find_if(messages.begin(), messages.end(), HasMedia) - messages.begin();
}

// Repeats each placeholder as often as its picture has tokens. Needs sizes of pictures, not pixels.
StatusOr<std::vector<int32_t>> WithPads(const Tokenizer& tokenizer, const std::vector<int32_t>& ids,
                                        const std::vector<const VisionInput*>& pictures,
                                        const VisionTokens& tokens) {
  std::vector<VisionInput> sizes(pictures.size());
  for (size_t i = 0; i < pictures.size(); ++i) {
    sizes[i].grid = pictures[i]->grid;
    sizes[i].merge_size = pictures[i]->merge_size;
    sizes[i].seconds = pictures[i]->seconds;
    sizes[i].source = pictures[i]->source;
  }
  StatusOr<std::vector<int32_t>> expanded = ExpandPictures(ids, sizes, tokens, &tokenizer);
  if (expanded.ok()) return expanded;
  return Status(StatusCode::kInput, expanded.status().message());
}

StatusOr<std::vector<int32_t>> EncodeWithPads(const Tokenizer& tokenizer,
                                              const std::vector<Segment>& segments,
                                              const std::vector<Message>& messages,
                                              const TemplateOptions& options) {
  std::vector<int32_t> ids = EncodeChat(tokenizer, segments);
  if (options.pictures == nullptr) {
    const size_t first = FirstWithMedia(messages);
    return first < messages.size() ? NoPictures(first) : StatusOr(std::move(ids));
  }
  KU_ASSIGN_OR_RETURN(const auto pictures, options.pictures->Of(messages));
  return WithPads(tokenizer, ids, pictures, options.pictures->tokens());
}

Status TakeImages(const std::vector<Message>& messages, const TemplateOptions& options,
                  Prompt* prompt) {
  if (options.pictures == nullptr) return OkStatus();
  KU_ASSIGN_OR_RETURN(const auto pictures, options.pictures->Of(messages));
  for (const VisionInput* picture : pictures) prompt->images.push_back(*picture);
  return OkStatus();
}

// True if the answer has ids that a prompt would take for placeholders of pictures.
bool HasPads(const Completion& answer, const PictureReader* pictures) {
  return pictures != nullptr &&
         std::any_of(answer.tokens.begin(), answer.tokens.end(), [&](int32_t id) {
           return id == pictures->tokens().image_pad || id == pictures->tokens().video_pad;
         });
}

StatusOr<std::vector<Segment>> Render(const Conversation& conversation,
                                      const TemplateOptions& options) {
  const PromptTemplate& chat_template = *options.chat_template;
  std::vector<Message> messages = conversation.Messages();
  ChatOptions chat = OptionsOf(options);
  if (conversation.system().has_value() && conversation.system()->empty()) {
    // Without any system message the template would write its own.
    if (!chat_template.facts().has_system) messages.erase(messages.begin());
    chat.default_system = false;
  }
  const size_t media = FirstWithMedia(messages);
  if (media < messages.size() && !chat_template.facts().takes_images) return NoPictures(media);
  return chat_template.Render(messages, chat, options.now.has_value() ? *options.now : LocalTime());
}

// True if both were rendered to the same text.
bool IsSamePrompt(const StatusOr<std::vector<Segment>>& a,
                  const StatusOr<std::vector<Segment>>& b) {
  return a.ok() && b.ok() && JoinSegments(*a) == JoinSegments(*b);
}

// The first message whose calls of tools the template has to show. A message with ids shows its
// own.
std::optional<size_t> FirstWithCalls(const std::vector<Message>& messages) {
  for (size_t i = 0; i < messages.size(); ++i) {
    if (messages[i].ids.empty() && !messages[i].tool_calls.empty()) return i;
  }
  return std::nullopt;
}

}  // namespace

std::vector<int32_t> ReusableIds(const Completion& answer, const TemplateOptions& options,
                                 bool exact_ids, const Tokenizer& tokenizer) {
  // After a cut by a stop string, the ids hold more than the text. If the template strips
  // reasoning, the answer moves to other positions and its keys and values are useless.
  const bool same_text = answer.finish != FinishReason::kStopString;
  if (!exact_ids || !same_text || HasPads(answer, options.pictures) ||
      (answer.has_reasoning && !KeepsThinking(options)))
    return {};
  std::vector<int32_t> ids;
  if (KeepsThinking(options) && !options.think.value_or(true)) {
    ids = tokenizer.EncodeWithSpecials(options.chat_template->facts().no_thinking);
  }
  const int end = answer.finish == FinishReason::kStop ? 1 : 0;
  ids.insert(ids.end(), answer.tokens.begin(), answer.tokens.end() - end);
  return ids;
}

void Conversation::SetMessages(std::vector<Message> messages) {
  system_.reset();
  // A message with more than a text stays a message. So does an empty one, because the template
  // renders it.
  if (!messages.empty() && messages[0].role == Role::kSystem && messages[0].parts.empty() &&
      !messages[0].text.empty() && messages[0].source.keys.size() <= 2) {
    system_ = std::move(messages[0].text);
    messages.erase(messages.begin());
  }
  messages_ = std::move(messages);
}

std::vector<Message> Conversation::Messages() const {
  std::vector<Message> messages = messages_;
  if (system_.has_value()) messages.insert(messages.begin(), TextMessage(Role::kSystem, *system_));
  return messages;
}

void Conversation::AddUser(const std::string& text, const std::vector<ContentPart>& media) {
  Message message = TextMessage(Role::kUser, text);
  if (!media.empty()) {
    message.parts = media;
    message.parts.push_back({.text = text});
  }
  messages_.push_back(std::move(message));
}

Status Conversation::ReadPictures(const std::string& folder, PictureReader* pictures) {
  return pictures->Read(folder, &messages_);
}

void Conversation::AddAnswer(const Completion& answer, const TemplateOptions& options,
                             bool exact_ids, const Tokenizer& tokenizer) {
  Message message = TextMessage(Role::kAssistant, answer.text);
  if (answer.has_reasoning) message.reasoning = answer.reasoning;
  message.ids = ReusableIds(answer, options, exact_ids, tokenizer);
  messages_.push_back(std::move(message));
}

bool Conversation::DropLastAnswer() {
  if (messages_.empty() || messages_.back().role != Role::kAssistant) return false;
  messages_.pop_back();
  return true;
}

void Conversation::DropToolCalls() {
  for (Message& message : messages_) {
    message.tool_calls.clear();
    std::vector<std::string>& keys = message.source.keys;
    const auto key = std::find(keys.begin(), keys.end(), "tool_calls");
    if (key == keys.end()) continue;
    message.source.items.erase(message.source.items.begin() + (key - keys.begin()));
    keys.erase(key);
  }
}

bool Conversation::DropLastTurn() {
  for (size_t i = messages_.size(); i-- > 0;) {
    if (!IsTurnStart(i)) continue;
    messages_.resize(i);
    return true;
  }
  return false;
}

bool Conversation::DropOldestTurn() {
  size_t begin = 0;
  while (begin < messages_.size() && !IsTurnStart(begin)) ++begin;
  size_t end = begin + 1;
  while (end < messages_.size() && !IsTurnStart(end)) ++end;
  if (end >= messages_.size()) return false;  // the only turn stays
  messages_.erase(messages_.begin() + begin, messages_.begin() + end);
  return true;
}

int Conversation::num_turns() const {
  int turns = 0;
  for (size_t i = 0; i < messages_.size(); ++i) turns += IsTurnStart(i) ? 1 : 0;
  return turns;
}

bool Conversation::waits_for_answer() const {
  return !messages_.empty() && messages_.back().role != Role::kAssistant;
}

std::optional<ThinkingTags> TemplateOptions::thinking() const {
  return chat_template == nullptr ? std::nullopt : chat_template->facts().thinking;
}

TemplateOptions WithMessages(TemplateOptions options, const ParsedMessages& messages) {
  options.documents = messages.documents;
  options.template_kwargs = messages.template_kwargs;
  options.add_generation_prompt = messages.add_generation_prompt.value_or(true);
  options.continue_final_message = messages.continue_final_message;
  if (!options.think.has_value()) options.think = messages.enable_thinking;
  options.tools_json = messages.tools_json;
  return options;
}

bool ShowsTools(const Conversation& conversation, const TemplateOptions& options) {
  if (options.tools_json.empty()) return true;
  TemplateOptions without = options;
  without.tools_json.clear();
  return !IsSamePrompt(Render(conversation, options), Render(conversation, without));
}

StatusOr<std::vector<Segment>> RenderPrompt(const Conversation& conversation,
                                            const TemplateOptions& options) {
  KU_ASSIGN_OR_RETURN(std::vector<Segment> segments, Render(conversation, options));
  if (!ShowsTools(conversation, options)) {
    return InputError("the model's chat template does not show tools",
                      "leave them out, or use a model that was trained to call tools");
  }
  const std::optional<size_t> message = FirstWithCalls(conversation.Messages());
  if (!message.has_value()) return segments;
  Conversation without = conversation;
  without.DropToolCalls();
  if (!IsSamePrompt(segments, Render(without, options))) return segments;
  return InputError("message " + std::to_string(*message) +
                    ": the model's chat template does not show tool_calls");
}

StatusOr<std::vector<int32_t>> EncodePrompt(const Tokenizer& tokenizer,
                                            const Conversation& conversation,
                                            const TemplateOptions& options) {
  KU_ASSIGN_OR_RETURN(const std::vector<Segment> segments, RenderPrompt(conversation, options));
  return EncodeWithPads(tokenizer, segments, conversation.Messages(), options);
}

HistoryLimits RoomForAnswers(int max_context, int max_new_tokens, bool continues) {
  const int room =
      max_new_tokens >= max_context ? max_context / 4 : std::min(max_new_tokens, max_context / 2);
  HistoryLimits limits;
  limits.max_prompt = max_context - room;
  limits.kept_prompt = continues ? limits.max_prompt / 2 : limits.max_prompt;
  return limits;
}

StatusOr<Prompt> BuildPrompt(const Tokenizer& tokenizer, const TemplateOptions& options,
                             const HistoryLimits& limits, Conversation* conversation) {
  const int most = std::max(0, conversation->num_turns() - 1);  // that may leave
  const auto without = [&](int turns) {
    Conversation rest = *conversation;
    while (turns-- > 0) rest.DropOldestTurn();
    return rest;
  };
  Prompt prompt;
  const auto encode = [&](int dropped) -> Status {
    const Conversation rest = without(dropped);
    KU_ASSIGN_OR_RETURN(const std::vector<Segment> segments, RenderPrompt(rest, options));
    KU_ASSIGN_OR_RETURN(prompt.ids, EncodeWithPads(tokenizer, segments, rest.Messages(), options));
    prompt.dropped_turns = dropped;
    if (!options.continue_final_message) {
      prompt.starts_thinking = options.chat_template->EndsInsideThinking(segments);
    } else {
      prompt.starts_thinking = prompt.thinking.has_value() &&
                               EndsInsideThinking(tokenizer, prompt.ids, *prompt.thinking);
    }
    return OkStatus();
  };
  prompt.thinking = options.thinking();
  KU_RETURN_IF_ERROR(encode(0));
  const size_t whole = prompt.ids.size();
  if (most > limits.max_turns) {
    prompt.surplus_turns = most - limits.kept_turns;
    KU_RETURN_IF_ERROR(encode(prompt.surplus_turns));
  }
  if (static_cast<int>(prompt.ids.size()) > limits.max_prompt) {
    // Finds the fewest turns that suffice: dropping more turns makes the prompt shorter.
    int few = prompt.dropped_turns, many = most;
    while (few < many) {
      const int middle = few + (many - few) / 2;
      KU_RETURN_IF_ERROR(encode(middle));
      if (static_cast<int>(prompt.ids.size()) <= limits.kept_prompt) {
        many = middle;
      } else {
        few = middle + 1;
      }
    }
    if (prompt.dropped_turns != few) KU_RETURN_IF_ERROR(encode(few));
  }
  for (int i = 0; i < prompt.dropped_turns; ++i) conversation->DropOldestTurn();
  prompt.dropped_tokens = static_cast<int>(whole - prompt.ids.size());
  KU_RETURN_IF_ERROR(TakeImages(conversation->Messages(), options, &prompt));
  return prompt;
}

std::vector<int32_t> EncodeRaw(const Tokenizer& tokenizer, const std::string& text, bool with_bos) {
  std::vector<int32_t> ids = tokenizer.EncodeWithSpecials(text);
  if (with_bos && tokenizer.bos().has_value()) ids.insert(ids.begin(), *tokenizer.bos());
  return ids;
}

StatusOr<Prompt> RawPrompt(const Tokenizer& tokenizer, const TemplateOptions& options,
                           const Message& message) {
  Prompt prompt{.ids = EncodeRaw(tokenizer, TextOf(message)), .thinking = options.thinking()};
  if (options.pictures == nullptr) {
    if (HasMedia(message)) return NoPictures(0);
  } else {
    KU_ASSIGN_OR_RETURN(const auto pictures, options.pictures->Of({message}));
    KU_ASSIGN_OR_RETURN(prompt.ids,
                        WithPads(tokenizer, prompt.ids, pictures, options.pictures->tokens()));
    KU_RETURN_IF_ERROR(TakeImages({message}, options, &prompt));
  }
  prompt.starts_thinking =
      prompt.thinking.has_value() && EndsInsideThinking(tokenizer, prompt.ids, *prompt.thinking);
  return prompt;
}

Request MakeRequest(Prompt prompt, const Request& parameters) {
  Request request = parameters;
  request.prompt = std::move(prompt.ids);
  request.images = std::move(prompt.images);
  request.split_thinking = prompt.thinking.has_value();
  request.starts_thinking = prompt.starts_thinking;
  if (prompt.thinking.has_value()) request.thinking_tags = *prompt.thinking;
  return request;
}

StatusOr<Request> MakeChatRequest(const Tokenizer& tokenizer, const PromptTemplate& chat_template,
                                  std::vector<Message> messages, const Request& parameters) {
  Conversation conversation;
  conversation.SetMessages(std::move(messages));
  KU_ASSIGN_OR_RETURN(Prompt prompt,
                      BuildPrompt(tokenizer, {.chat_template = &chat_template}, {}, &conversation));
  return MakeRequest(std::move(prompt), parameters);
}

bool EndsInsideThinking(const Tokenizer& tokenizer, const std::vector<int32_t>& prompt,
                        const ThinkingTags& tags) {
  const std::optional<int32_t> turn = tokenizer.TokenId("<|im_start|>");
  const std::optional<int32_t> open = tokenizer.TokenId(tags.open);
  const std::optional<int32_t> close = tokenizer.TokenId(tags.close);
  for (size_t i = prompt.size(); i-- > 0;) {
    if (prompt[i] == open) return true;
    if (prompt[i] == close || prompt[i] == turn) return false;
  }
  return false;
}

}  // namespace kuiper
