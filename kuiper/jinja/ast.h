// The tree of a template. Nodes belong to the Template that was parsed. Every node stores the byte
// of the source where it begins, for messages.
#pragma once

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

#include "kuiper/jinja/value.h"

namespace kuiper::jinja {

enum class NodeKind {
  // Expressions
  kConstant,     // value
  kName,         // name
  kList,         // kids
  kTuple,        // kids
  kDict,         // kids: alternating keys and values
  kAttribute,    // kids[0].name
  kElement,      // kids[0][kids[1]]
  kSlice,        // kids: begin, end, step, each may be null; only as kids[1] of kElement
  kCall,         // kids[0](arguments)
  kFilter,       // kids[0]|name(arguments); in a {% filter %} kids[0] of the innermost one is null
  kTest,         // kids[0] is name(arguments); negated: is not
  kNot,          // kids[0]
  kNegative,     // -kids[0]
  kPositive,     // +kids[0]
  kAnd,          // kids[0], kids[1]
  kOr,           // kids[0], kids[1]
  kArithmetic,   // kids[0] op kids[1]
  kConcat,       // kids joined as strings
  kCompare,      // kids[0] ops[0] kids[1] ops[1] kids[2] and so on
  kConditional,  // kids[1] if kids[0] else kids[2], which may be null
  // Statements
  kData,         // value: text of the template
  kOutput,       // kids[0]
  kFor,          // for target in kids[0] if kids[1] (may be null): body, else: other
  kIf,           // kids[i]: bodies[i] ..., else: other
  kSet,          // target = kids[0]; without kids: the body's text, through `filter`
  kMacro,        // name, parameters, body
  kCallBlock,    // kids[0] is the call; parameters and body are the caller's
  kFilterBlock,  // body through `filter`
  kWith,         // targets = kids, body
  kScope,        // body (generation blocks)
  kBreak,
  kContinue,
};

enum class Operator {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

// The left side of an assignment: a name, ns.attribute, or a tuple of targets.
struct Target {
  std::string_view name;
  std::string_view attribute;  // not empty: of the namespace `name`
  std::vector<Target> parts;   // not empty: unpacks
};

struct Parameter {
  std::string_view name;
  const Node* value = nullptr;  // the default, may be null
};

struct Arguments {
  std::vector<const Node*> positional;
  std::vector<std::pair<std::string_view, const Node*>> keyword;
  const Node* more_positional = nullptr;  // *list
  const Node* more_keyword = nullptr;     // **dict
};

struct Builtin;

struct Node {
  NodeKind kind;
  size_t at = 0;  // byte of the source
  std::string_view name = {};
  Value value = {};
  std::vector<const Node*> kids = {};
  std::vector<Operator> operators = {};
  Arguments arguments = {};
  const Builtin* builtin = nullptr;  // filter or test; null: no builtin has this name
  bool negated = false;              // test: "is not"
  bool recursive = false;            // loop
  // Macro: it takes more arguments than it has parameters.
  bool takes_varargs = false, takes_kwargs = false;
  Target target = {};
  std::vector<Target> targets = {};
  std::vector<Parameter> parameters = {};
  const Node* filter = nullptr;
  std::vector<const Node*> body = {};
  std::vector<std::vector<const Node*>> bodies = {};
  std::vector<const Node*> other = {};
};

}  // namespace kuiper::jinja
