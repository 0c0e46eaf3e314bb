// The messages of a chat, and how they become the ids of the next prompt. History keeps the ids the
// model really generated wherever the template keeps the text unchanged, so that the new prompt
// begins with exactly the tokens whose keys and values are already computed. Knows no engine.
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
#include "kuiper/io/chat_template.h"
#include "kuiper/io/messages_json.h"
#include "kuiper/io/tokenizer.h"

namespace kuiper {

struct TemplateOptions {
  ChatFamily family = ChatFamily::kNone;
  const PromptTemplate* own = nullptr;  // the model's own template; null: the family's renderer
  std::optional<bool> think = {};       // absent: the template's own
  bool keep_thinking = false;           // earlier turns keep their reasoning
  std::vector<std::string> tools_json = {};
  JsonNode documents = {};        // a list, or null
  JsonNode template_kwargs = {};  // an object, or null
  bool add_generation_prompt = true;
  bool continue_final_message = false;  // see ChatOptions
  std::optional<std::tm> now = {};      // what strftime_now sees; absent: the local time
  // Has the images and videos of the messages; null: the model takes text only.
  const PictureReader* pictures = nullptr;

  // The model's thinking tags; absent: it does not think.
  std::optional<ThinkingTags> thinking() const;
  // What no template offers (reasoning kept in history, no system message at all) is there where
  // the family's renderer writes the same prompts.
  std::optional<ChatFamily> equal_family() const;
};

// `options` with what a file or a body of messages says besides; what `options` decide about
// thinking stays.
TemplateOptions WithMessages(TemplateOptions options, const ParsedMessages& messages);

// The ids that stand for an answer in the prompts of later turns; empty where its text must be
// encoded: the ids say more than the text, or stand where the template has something else.
// `exact_ids` false: they must not be reused (e.g. after ignore_eos).
std::vector<int32_t> ReusableIds(const Completion& answer, const TemplateOptions& options,
                                 bool exact_ids, const Tokenizer& tokenizer);

class Conversation {
 public:
  // Absent: the template's own system message. Empty: none at all.
  void SetSystem(std::optional<std::string> system) { system_ = std::move(system); }
  const std::optional<std::string>& system() const { return system_; }

  // Replaces everything, the system message too: a leading one becomes it, else the template's own.
  void SetMessages(std::vector<Message> messages);
  // All messages, with the system message unless it is the template's own.
  std::vector<Message> Messages() const;
  void Clear() { turns_.clear(); }

  // `media`: images and videos, which stand in front of the text.
  void AddUser(const std::string& text, const std::vector<ContentPart>& media = {});
  // Reads the images and videos of all messages; relative paths begin at `folder`. kInput.
  Status ReadPictures(const std::string& folder, PictureReader* pictures);
  // The answer to the last message, with its ReusableIds.
  void AddAnswer(const Completion& answer, const TemplateOptions& options, bool exact_ids,
                 const Tokenizer& tokenizer);
  // Takes back the last answer, so that its question can be answered again. False: there is none.
  bool DropLastAnswer();
  // Leaves the texts of the messages.
  void DropToolCalls();
  // Takes back the last question and its answer. False: there is none.
  bool DropLastTurn();
  // A turn is a user message and all that follows up to the next one. False: only one is left.
  bool DropOldestTurn();
  // Turns, the unanswered one included.
  int num_turns() const;
  bool waits_for_answer() const;

 private:
  bool IsTurnStart(size_t i) const { return turns_[i].role == Role::kUser; }

  std::optional<std::string> system_;
  // All but the system message; an answer that can be reused as it was generated has its ids.
  std::vector<Message> turns_;
};

// False if the prompt would be the same without the tools of `options`: the template drops them.
bool ShowsTools(const Conversation& conversation, const TemplateOptions& options);
// The next prompt before it is encoded. kInput also if the template does not show the tools, or the
// calls of tools in the messages.
StatusOr<std::vector<Segment>> RenderPrompt(const Conversation& conversation,
                                            const TemplateOptions& options);
// The ids of the next prompt, ending where the answer begins, with all tokens of pictures.
StatusOr<std::vector<int32_t>> EncodePrompt(const Tokenizer& tokenizer,
                                            const Conversation& conversation,
                                            const TemplateOptions& options);

// When the oldest turns leave a conversation, and how many. A prompt that lost its beginning finds
// nothing in a prefix cache, so many turns leave at once, and seldom.
struct HistoryLimits {
  int max_prompt = INT_MAX;   // tokens; a longer prompt is cut
  int kept_prompt = INT_MAX;  // to at most so many
  int max_turns = INT_MAX;    // before the newest one; of more
  int kept_turns = INT_MAX;   // so many stay
};

// Room for an answer of `max_new_tokens` behind every prompt: at most half the context, and a
// quarter for an answer that may take all of it. `goes_on`: there will be more turns, so that a
// prompt is cut to half of what it may have; else no more is cut than must be.
HistoryLimits RoomForAnswers(int max_context, int max_new_tokens, bool goes_on);

struct Prompt {
  std::vector<int32_t> ids;
  std::vector<VisionInput> images = {};       // in the order of their pads
  std::optional<ThinkingTags> thinking = {};  // of the answer; absent: it has no reasoning
  bool starts_thinking = false;               // the prompt ends inside an open tag
  int dropped_turns = 0;
  int surplus_turns = 0;  // of them, those beyond HistoryLimits::max_turns
  int dropped_tokens = 0;
};

// EncodePrompt, after turns have left the conversation as `limits` say. The newest one stays.
StatusOr<Prompt> BuildPrompt(const Tokenizer& tokenizer, const TemplateOptions& options,
                             const HistoryLimits& limits, Conversation* conversation);

// `parameters` with the prompt and what it says about the answer.
Request MakeRequest(Prompt prompt, const Request& parameters);

// The ids of a text without a chat template: control tokens may be spelled in it. `with_bos`: the
// token that begins a sequence comes first, where the tokenizer wants one.
std::vector<int32_t> EncodeRaw(const Tokenizer& tokenizer, const std::string& text,
                               bool with_bos = true);
// The same of a message with images and videos, for each of which the text has one pad.
StatusOr<Prompt> RawPrompt(const Tokenizer& tokenizer, const TemplateOptions& options,
                           const Message& message);

// Whether the generation prompt ends inside an open thinking block.
bool EndsInsideThinking(const Tokenizer& tokenizer, const std::vector<int32_t>& prompt,
                        const ThinkingTags& tags = {});

}  // namespace kuiper
