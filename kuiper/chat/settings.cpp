#include "kuiper/chat/settings.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "kuiper/base/errors.h"
#include "kuiper/base/terminal_text.h"
#include "kuiper/base/text.h"
#include "kuiper/chat/parameters.h"
#include "kuiper/io/utf8.h"

namespace kuiper {
namespace {

constexpr char kOverflow[] = "overflow";

struct Assignment {
  std::string name, value;
};

// NAME=VALUE at `*at`, which then is behind it. A value in double quotes may hold blanks, and \n,
// \t, \" and \\ stand for what they do in C.
StatusOr<Assignment> NextAssignment(const std::string& text, size_t* at) {
  const size_t end = std::min(text.find_first_of(" \t\n", *at), text.size());
  const size_t equals = text.find('=', *at);
  if (equals >= end) {
    return InvalidArgument("/set: '" + text.substr(*at, end - *at) + "' is not NAME=VALUE",
                           "/set alone lists the parameters");
  }
  Assignment assignment{text.substr(*at, equals - *at), ""};
  if (text[equals + 1] != '"') {
    assignment.value = text.substr(equals + 1, end - equals - 1);
    *at = end;
    return assignment;
  }
  for (size_t i = equals + 2; i < text.size(); ++i) {
    if (text[i] == '"') {
      *at = i + 1;
      return assignment;
    }
    const bool escape = text[i] == '\\' && i + 1 < text.size();
    const char c = escape ? text[++i] : text[i];
    assignment.value += !escape ? c : c == 'n' ? '\n' : c == 't' ? '\t' : c;
  }
  return InvalidArgument("/set " + assignment.name + ": the closing quote is missing");
}

std::string InQuotes(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c == '\n' ? "\\n" : c == '\t' ? "\\t" : std::string(1, c);
  }
  return quoted + '"';
}

// "; did you mean temp?" for what is no parameter of /set.
std::string Suggestion(const std::string& name) {
  std::vector<std::string_view> names = {kOverflow};
  for (const Parameter& parameter : Parameters()) {
    if (parameter.in_chats) names.emplace_back(parameter.typed_name);
  }
  return DidYouMean(name, names);
}

// Of a list the first value replaces what was there, and an empty one leaves nothing.
Status SetParameter(const Parameter& parameter, const std::string& spelled,
                    const std::string& value, bool first, Request* request) {
  const Variable variable = parameter.of(*request);
  auto* const* strings = std::get_if<std::vector<std::string>*>(&variable);
  if (strings != nullptr && first) (*strings)->clear();
  if (strings != nullptr && value.empty()) return OkStatus();
  if (!IsValidUtf8(value)) return InvalidArgument(spelled + " is not valid UTF-8");
  return parameter.Set(request, spelled, value);
}

}  // namespace

NamedValues OverflowNames(bool* drop_oldest) {
  return OneOf(drop_oldest, {{"error", false}, {"drop-oldest", true}});
}

Status ApplySettings(const std::string& assignments, Request* parameters, bool* drop_oldest) {
  Request changed = *parameters;
  bool drops = *drop_oldest;
  std::set<std::string> seen;
  for (size_t at = 0; (at = assignments.find_first_not_of(" \t\n", at)) != std::string::npos;) {
    KU_ASSIGN_OR_RETURN(const Assignment word, NextAssignment(assignments, &at));
    std::string name = word.name;
    std::replace(name.begin(), name.end(), '-', '_');
    const Parameter* parameter = FindParameter(name);
    const bool found = parameter != nullptr && parameter->in_chats;
    if (found) name = parameter->typed_name;
    const bool first = seen.insert(name).second;
    const std::string spelled = "/set " + name;
    Status set;
    if (found) {
      set = SetParameter(*parameter, spelled, word.value, first, &changed);
    } else if (name == kOverflow) {
      set = SetVariable(OverflowNames(&drops), {}, spelled, word.value);
    } else {
      set = InvalidArgument(spelled + ": there is no such parameter" + Suggestion(word.name));
    }
    if (!set.ok()) return InvalidArgument(set.message(), "/set alone lists the parameters");
  }
  *parameters = changed;
  *drop_oldest = drops;
  return OkStatus();
}

std::string DescribeSettings(const Request& parameters, bool drop_oldest) {
  Request copy = parameters;
  std::vector<std::string> settings;
  for (const Parameter& parameter : Parameters()) {
    if (!parameter.in_chats) continue;
    const std::string name = parameter.typed_name + "=";
    const Variable variable = parameter.of(copy);
    if (auto* const* strings = std::get_if<std::vector<std::string>*>(&variable)) {
      for (const std::string& value : **strings) settings.push_back(name + InQuotes(value));
      if (!(*strings)->empty()) continue;
    }
    settings.push_back(name + VariableText(variable, parameter.limits));
  }
  settings.push_back(std::string(kOverflow) + "=" + VariableText(OverflowNames(&drop_oldest)));
  return Wrapped(settings, 0);
}

}  // namespace kuiper
