// The choices of one response while they are generated: splits the engine's events into text,
// reasoning and tool calls. The writers of the API formats (openai_answer.h and others) read from
// it. Independent of HTTP.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kuiper/chat/tool_calls.h"
#include "kuiper/server/engine_loop.h"
#include "kuiper/server/served_model.h"

namespace kuiper {

struct CallPart {
  std::string id;  // "call_..."
  ParsedToolCall call;
};

struct TokenPart {
  int32_t token = 0;
  std::optional<TokenLogprobs> logprobs;
};

// The additions of one event to one choice.
struct AnswerDelta {
  int choice = 0;
  std::string text, reasoning;
  std::vector<CallPart> calls;
  std::vector<TokenPart> tokens;  // only if the request asks for log probabilities or ids
  bool is_last = false;

  bool empty() const {
    return text.empty() && reasoning.empty() && calls.empty() && tokens.empty();
  }
};

class AnswerParts {
 public:
  // `prepared` must outlive this object. `id` is unique among responses.
  AnswerParts(const PreparedRequest& prepared, const std::optional<ToolCallFormat>& form,
              const std::string& id);

  struct Choice {
    std::string text, reasoning;
    std::vector<CallPart> calls;
    std::vector<TokenPart> tokens;
    size_t text_begin = 0;  // index of the first token of the text, after the reasoning
    std::vector<TokenLogprobs> prompt_logprobs;  // set by the first event
    std::optional<Completion> completion;        // set when the choice has ended
    std::optional<ToolCallParser> parser;

    // Returns "stop", "length" or "tool_calls".
    const char* finish() const;
  };

  AnswerDelta Take(AnswerEvent event);
  const std::vector<Choice>& choices() const { return choices_; }
  bool is_done() const { return num_running_ == 0; }
  // Returns the error of a failed choice; OK if none has failed.
  Status error() const;

  // Sums over all choices, as far as known.
  int num_prompt_tokens() const;
  int num_image_tokens() const { return prepared_.num_image_tokens; }
  int num_cached_tokens() const;
  int num_generated_tokens() const { return num_generated_; }
  int num_reasoning_tokens() const;

 private:
  void AddCalls(std::vector<ParsedToolCall> calls, Choice* choice, AnswerDelta* delta) const;

  const PreparedRequest& prepared_;
  const std::string id_;
  std::vector<Choice> choices_;
  int num_running_;
  int num_generated_ = 0;
};

}  // namespace kuiper
