// Conversation -> prompt ids, counted against the context. Needs no engine, so that a prompt that
// is too long is reported before weights are read.
#pragma once

#include <string>

#include "demo/console.h"
#include "demo/options.h"
#include "kuiper/chat/conversation.h"

namespace kuiper::demo {

// Lengths in tokens of one sequence.
struct ContextLimits {
  int max_context = 0;  // limit of this run
  int of_model = 0;     // the model's limit, up to which max_context can be raised
};

class Prompter {
 public:
  // `tokenizer` and the other references must outlive the object.
  Prompter(const Options& options, Console& console, const Tokenizer& tokenizer,
           ContextLimits limits)
      : options_(options), console_(console), tokenizer_(tokenizer), limits_(limits) {}

  // Drops the oldest turns of `conversation` if there are too many. Also drops turns if the prompt
  // leaves no room for an answer with `parameters` and the options allow it. Reports what was
  // dropped. With --raw, the prompt is the text of the last message. Returns kContextExceeded, with
  // a hint.
  StatusOr<Prompt> Build(const TemplateOptions& chat, const Request& parameters,
                         Conversation* conversation) const;

 private:
  HistoryLimits LimitsOf(const Request& parameters) const;
  // Returns the hint for a prompt of num_tokens tokens; `has_history`: some turns could be dropped.
  std::string Hint(int num_tokens, bool has_history) const;

  const Options& options_;
  Console& console_;
  const Tokenizer& tokenizer_;
  const ContextLimits limits_;
};

}  // namespace kuiper::demo
