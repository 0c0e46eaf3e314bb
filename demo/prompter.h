// Conversation -> prompt ids, counted against the context. Needs no engine, so that a prompt that
// is too long is known before weights are read.
#pragma once

#include <string>

#include "demo/console.h"
#include "demo/options.h"
#include "kuiper/chat/conversation.h"

namespace kuiper::demo {

// Tokens of one sequence.
struct ContextLimits {
  int max_context = 0;  // of this run
  int of_model = 0;     // to which it could be raised
};

class Prompter {
 public:
  // `tokenizer` and the others must outlive it.
  Prompter(const Options& options, Console& console, const Tokenizer& tokenizer,
           ContextLimits limits)
      : options_(options), console_(console), tokenizer_(tokenizer), limits_(limits) {}

  // Drops the oldest turns of `conversation` if there are too many, or if the prompt leaves no room
  // for an answer of `parameters` and the options allow it; says what was dropped. With --raw the
  // prompt is the text of the last message. kContextExceeded with a hint.
  StatusOr<Prompt> Build(const TemplateOptions& chat, const Request& parameters,
                         Conversation* conversation) const;

 private:
  HistoryLimits LimitsOf(const Request& parameters) const;
  // For a prompt of so many tokens; `has_history`: there are turns that could leave.
  std::string Hint(int num_tokens, bool has_history) const;

  const Options& options_;
  Console& console_;
  const Tokenizer& tokenizer_;
  const ContextLimits limits_;
};

}  // namespace kuiper::demo
