// The answers to one body while they are generated: what the engine tells, taken apart into text,
// reasoning and tool calls. The forms of answers (openai_answer.h and its neighbours) are written
// from it. Knows no HTTP.
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

// What an event adds to an answer.
struct AnswerDelta {
  int choice = 0;
  std::string text, reasoning;
  std::vector<CallPart> calls;
  std::vector<TokenPart> tokens;  // where log probabilities or ids are wanted
  bool is_last = false;

  bool empty() const {
    return text.empty() && reasoning.empty() && calls.empty() && tokens.empty();
  }
};

class AnswerParts {
 public:
  // `prepared` must outlive it. `id`: a word that no other answer has.
  AnswerParts(const PreparedRequest& prepared, const std::optional<ToolCallForm>& form,
              const std::string& id);

  struct Choice {
    std::string text, reasoning;
    std::vector<CallPart> calls;
    std::vector<TokenPart> tokens;
    size_t text_begin = 0;  // the first of the tokens that belongs to the text, not to reasoning
    std::vector<TokenLogprobs> prompt_logprobs;  // there with the first event
    std::optional<Completion> completion;        // there when it has ended
    std::optional<ToolCallParser> parser;

    // "stop", "length" or "tool_calls".
    const char* finish() const;
  };

  AnswerDelta Take(AnswerEvent event);
  const std::vector<Choice>& choices() const { return choices_; }
  bool is_done() const { return num_running_ == 0; }
  // Of an answer that failed; OK where all went well.
  Status error() const;

  // All together, as far as they are known.
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
