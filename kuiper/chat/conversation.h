// The messages of a chat, and how they become the token ids of the next prompt. Where the template
// keeps an answer's text unchanged, history keeps the ids that the model generated. The new prompt
// then begins with the tokens whose keys and values are already computed. Knows no engine.
#pragma once

#include <climits>
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <vector>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"
#include "kuiper/chat/picture_reader.h"
#include "kuiper/chat/prompt_template.h"
#include "kuiper/engine/request.h"
#include "kuiper/io/chat_message.h"
#include "kuiper/io/messages_json.h"
#include "kuiper/io/tokenizer.h"

namespace kuiper {

struct TemplateOptions {
  const PromptTemplate* chat_template = nullptr;  // null only for RawPrompt
  std::optional<bool> think = {};                 // absent: as the template does by default
  bool keep_thinking = false;                     // earlier turns keep their reasoning
  std::vector<std::string> tools_json = {};
  JsonNode documents = {};        // a list, or null
  JsonNode template_kwargs = {};  // an object, or null
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // see ChatOptions
  std::optional<std::tm> now = {};      // what strftime_now sees; absent: the local time
  // Holds the images and videos of the messages; null if the model takes text only.
  const PictureReader* pictures = nullptr;

  // The model's thinking tags; absent if it has no thinking mode.
  std::optional<ThinkingTags> thinking() const;
};

// Adds the options that a file or a request body has next to its messages. `options.think` stays if
// it is set.
TemplateOptions WithMessages(TemplateOptions options, const ParsedMessages& messages);

// Returns the ids that later prompts use for an answer. They are empty if its text must be encoded:
// the ids hold more than the text, or the template writes something else there. `exact_ids` false
// forbids their use (e.g. after ignore_eos).
std::vector<int32_t> ReusableIds(const Completion& answer, const TemplateOptions& options,
                                 bool exact_ids, const Tokenizer& tokenizer);

class Conversation {
 public:
  // Absent: the template's own system message. Empty: no system message at all.
  void SetSystem(std::optional<std::string> system) { system_ = std::move(system); }
  const std::optional<std::string>& system() const { return system_; }

  // Replaces everything. The system message becomes a leading one of `messages`, or else absent.
  void SetMessages(std::vector<Message> messages);
  // All messages, led by the system message if it is not absent.
  std::vector<Message> Messages() const;
  void Clear() { messages_.clear(); }

  // `media`: images and videos, which come before the text.
  void AddUser(const std::string& text, const std::vector<ContentPart>& media = {});
  // Reads the images and videos of all messages; relative paths begin at `folder`. kInput.
  Status ReadPictures(const std::string& folder, PictureReader* pictures);
  // Appends the answer to the last message, with its ReusableIds.
  void AddAnswer(const Completion& answer, const TemplateOptions& options, bool exact_ids,
                 const Tokenizer& tokenizer);
  // Removes the last answer, so that its question can be answered again. False if there is none.
  bool DropLastAnswer();
  // Removes the calls of tools and keeps the texts of the messages.
  void DropToolCalls();
  // Removes the last question and its answer. False if there is none.
  bool DropLastTurn();
  // A turn is a user message and all that follows up to the next one. False if only one is left.
  bool DropOldestTurn();
  // Counts the unanswered turn, too.
  int num_turns() const;
  bool waits_for_answer() const;

 private:
  bool IsTurnStart(size_t i) const { return messages_[i].role == Role::kUser; }

  std::optional<std::string> system_;
  // All messages but the system message. An answer that can be reused as it was generated has its
  // ids.
  std::vector<Message> messages_;
};

// False if the template drops the tools of `options`: the prompt would be the same without them.
bool ShowsTools(const Conversation& conversation, const TemplateOptions& options);
// Renders the next prompt. kInput also if the template does not show the tools, or the calls of
// tools in the messages.
StatusOr<std::vector<Segment>> RenderPrompt(const Conversation& conversation,
                                            const TemplateOptions& options);
// Encodes the next prompt, which ends where the answer begins, with all tokens of pictures.
StatusOr<std::vector<int32_t>> EncodePrompt(const Tokenizer& tokenizer,
                                            const Conversation& conversation,
                                            const TemplateOptions& options);

// When the oldest turns leave a conversation, and how many. A prompt that lost its beginning finds
// nothing in a prefix cache, so turns leave seldom, and many at once.
struct HistoryLimits {
  int max_prompt = INT_MAX;   // a prompt of more tokens is cut
  int kept_prompt = INT_MAX;  // most tokens of a prompt that was cut
  int max_turns = INT_MAX;    // more turns before the newest one are cut
  int kept_turns = INT_MAX;   // turns before the newest one that stay then
};

// Leaves room for an answer of `max_new_tokens` after every prompt: at most half of the context,
// and a quarter for an answer that may take all of it. If the chat `continues`, a prompt is cut to
// half of what it may have; else no more is cut than needed.
HistoryLimits RoomForAnswers(int max_context, int max_new_tokens, bool continues);

struct Prompt {
  std::vector<int32_t> ids;
  std::vector<VisionInput> images = {};       // in the order of their placeholders
  std::optional<ThinkingTags> thinking = {};  // the answer's tags; absent if it has no reasoning
  bool starts_thinking = false;               // the prompt ends inside an open tag
  int dropped_turns = 0;
  int surplus_turns = 0;  // how many of them exceeded HistoryLimits::max_turns
  int dropped_tokens = 0;
};

// Drops turns from the conversation as `limits` say, but not the newest one, and encodes the
// prompt.
StatusOr<Prompt> BuildPrompt(const Tokenizer& tokenizer, const TemplateOptions& options,
                             const HistoryLimits& limits, Conversation* conversation);

// Returns `parameters` with the prompt and what it says about the answer.
Request MakeRequest(Prompt prompt, const Request& parameters);

// The whole way from messages to a request of Engine::Add. kInput if the template refuses the
// messages. `parameters` holds everything but the prompt.
StatusOr<Request> MakeChatRequest(const Tokenizer& tokenizer, const PromptTemplate& chat_template,
                                  std::vector<Message> messages, const Request& parameters = {});

// Encodes a text without a chat template; control tokens may be spelled in it. With `with_bos` the
// token that begins a sequence comes first, if the tokenizer has one.
std::vector<int32_t> EncodeRaw(const Tokenizer& tokenizer, const std::string& text,
                               bool with_bos = true);
// Does the same for a message with images and videos. Its text has one placeholder for each of
// them.
StatusOr<Prompt> RawPrompt(const Tokenizer& tokenizer, const TemplateOptions& options,
                           const Message& message);

// True if the generation prompt ends inside an open thinking block.
bool EndsInsideThinking(const Tokenizer& tokenizer, const std::vector<int32_t>& prompt,
                        const ThinkingTags& tags = {});

}  // namespace kuiper
