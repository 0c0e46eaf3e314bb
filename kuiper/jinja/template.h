// A chat template: parsed once, rendered any number of times. The language is the Jinja of chat
// templates, with the settings of transformers' apply_chat_template: trim_blocks, lstrip_blocks,
// loop controls, {% generation %}, a sandbox, tojson as json.dumps prints it. The cost of a
// rendering is bounded. Independent of messages and tokenizers.
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
  int64_t steps = 50'000'000;              // expressions, statements and visited elements
  size_t output_bytes = size_t{64} << 20;  // size of the rendered text
  int depth = 600;                         // nesting of expressions, statements and macro calls
};

struct Rendered {
  std::string text;
  std::vector<Run> runs;  // origins of the bytes of `text`; their lengths add up to its size
};

// Whether the template raised the error itself, and its message.
struct Refusal {
  bool by_template = false;
  std::string words;  // the message of raise_exception
};

class Template {
 public:
  // Errors are kModel, with line and column.
  static StatusOr<Template> Parse(std::string_view source);

  // Renders with `variables`, the values of the template's global names. `heap` owns them and all
  // computed values. `now` is the time of strftime_now. Errors are kInput with line and column;
  // `refusal`, if given, has the details.
  using Variables = std::vector<std::pair<std::string_view, Value>>;
  StatusOr<Rendered> Render(const Variables& variables, const std::tm& now, const Limits& limits,
                            Heap* heap, Refusal* refusal = nullptr) const;

  // True if the template reads the name anywhere: as a variable, an attribute or an element.
  bool Mentions(std::string_view name) const;
  // The text between the tags and in string literals of the source, each followed by a line break.
  const std::string& literals() const { return parts_->literals; }
  const std::string& source() const { return parts_->source; }

 private:
  // Data that nodes refer to; its address does not change.
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
