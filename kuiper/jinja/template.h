// A chat template: parsed once, rendered as often as wanted. The language is Jinja's as chat
// templates use it, with the settings of transformers' apply_chat_template: trim_blocks,
// lstrip_blocks, loop controls, {% generation %}, a sandbox, tojson as json.dumps prints it. What
// a template may cost is bounded. Knows nothing of messages and tokenizers.
#pragma once

#include <ctime>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/jinja/ast.h"
#include "kuiper/jinja/text.h"
#include "kuiper/jinja/value.h"

namespace kuiper::jinja {

struct Limits {
  int64_t steps = 50'000'000;              // expressions, statements and elements looked at
  size_t output_bytes = size_t{64} << 20;  // of the rendered text
  int depth = 600;                         // of nested expressions, statements and macro calls
};

struct Rendered {
  std::string text;
  std::vector<Run> runs;  // who wrote which bytes of `text`; their lengths sum up to its size
};

// What went wrong, and whether the template itself said so.
struct Refusal {
  bool by_template = false;
  std::string words;  // of raise_exception
};

class Template {
 public:
  // Errors are kModel with line and column.
  static StatusOr<Template> Parse(std::string_view source);

  // Values of the template's global names, in `heap`, which holds what is computed as well; `now`
  // is what strftime_now sees. Errors are kInput with line and column; `refusal` tells more, if
  // given.
  using Variables = std::vector<std::pair<std::string_view, Value>>;
  StatusOr<Rendered> Render(const Variables& variables, const std::tm& now, const Limits& limits,
                            Heap* heap, Refusal* refusal = nullptr) const;

  // Whether the template reads the name anywhere: as a variable, an attribute or an element.
  bool Mentions(std::string_view name) const;
  // The text of the source between its tags and in its string literals, each with a line break.
  const std::string& literals() const { return parts_->literals; }
  const std::string& source() const { return parts_->source; }

 private:
  // What nodes refer to; its place does not change.
  struct Parts {
    std::string source;
    std::deque<Node> nodes;
    Heap constants{size_t{64} << 20};
    std::vector<const Node*> body;
    std::string literals;
  };
  Template() = default;
  std::unique_ptr<Parts> parts_;
};

}  // namespace kuiper::jinja
