#include "kuiper/chat/settings.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "kuiper/base/errors.h"
#include "kuiper/base/terminal_text.h"
#include "kuiper/base/text.h"
#include "kuiper/chat/other_names.h"
#include "kuiper/chat/parameters.h"
#include "kuiper/io/utf8.h"

namespace kuiper {
namespace {

constexpr char kOverflow[] = "overflow";

struct Assignment {
  std::string name;
  std::vector<std::string> values = {};  // several for a list; empty if the value is missing
};

constexpr char kBlanks[] = " \t\n";

// Splits the text into words at blanks and at the "=" between a name and its value.
class SettingsReader {
 public:
  explicit SettingsReader(const std::string& text) : text_(text) {}

  StatusOr<std::vector<Assignment>> Run() {
    std::vector<Assignment> all;
    while (SkipBlanks()) {
      const size_t end = std::min(text_.find_first_of(" \t\n=", at_), text_.size());
      Assignment one{text_.substr(at_, end - at_)};
      at_ = end;
      const bool is_glued = TakeSign();  // NAME=VALUE
      // Ollama's syntax is "/set parameter NAME VALUE".
      if (one.name == "parameter" && !is_glued && SkipBlanks()) continue;
      const bool is_list = KuiperName(one.name) == "stop";
      const bool has_sign = is_glued || (SkipBlanks() && TakeSign());
      bool more = is_glued && (is_list || !NextIsBlank());
      if (!more) more = SkipBlanks() && (!NextIsNamed() || (has_sign && !is_glued));
      while (more) {
        KU_ASSIGN_OR_RETURN(one.values.emplace_back(), Value(one.name));
        more = is_list && !has_sign && SkipBlanks() && !NextIsNamed();
      }
      all.push_back(std::move(one));
    }
    return all;
  }

 private:
  bool SkipBlanks() {
    at_ = std::min(text_.find_first_not_of(kBlanks, at_), text_.size());
    return at_ < text_.size();
  }
  bool NextIsBlank() const {
    return at_ == text_.size() || std::string_view(kBlanks).find(text_[at_]) != std::string::npos;
  }
  bool TakeSign() {
    const bool there = at_ < text_.size() && text_[at_] == '=';
    if (there) ++at_;
    return there;
  }
  // True if NAME=VALUE comes next.
  bool NextIsNamed() const {
    const size_t end = text_.find_first_of(" \t\n=\"", at_);
    return end < text_.size() && text_[end] == '=';
  }

  // Reads a value. In double quotes it may contain blanks and C's escapes \n, \t, \" and \\.
  StatusOr<std::string> Value(const std::string& name) {
    if (NextIsBlank() || text_[at_] != '"') {
      const size_t end = std::min(text_.find_first_of(kBlanks, at_), text_.size());
      const size_t begin = std::exchange(at_, end);
      return text_.substr(begin, end - begin);
    }
    std::string value;
    for (++at_; at_ < text_.size(); ++at_) {
      if (text_[at_] == '"') {
        ++at_;
        return value;
      }
      const bool escape = text_[at_] == '\\' && at_ + 1 < text_.size();
      const char c = escape ? text_[++at_] : text_[at_];
      value += !escape ? c : c == 'n' ? '\n' : c == 't' ? '\t' : c;
    }
    return InvalidArgument("/set " + name + ": the closing quote is missing");
  }

  const std::string& text_;
  size_t at_ = 0;
};

std::string Joined(const std::vector<std::string>& texts, const char* between) {
  std::string all;
  for (const std::string& text : texts) all.append(all.empty() ? "" : between).append(text);
  return all;
}

std::string InQuotes(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c == '\n' ? "\\n" : c == '\t' ? "\\t" : std::string(1, c);
  }
  return quoted + '"';
}

// Returns "; did you mean temp?" for an unknown parameter of /set.
std::string Suggestion(const std::string& name) {
  std::vector<std::string_view> names = {kOverflow};
  for (const Parameter& parameter : Parameters()) {
    if (parameter.in_chats) names.emplace_back(parameter.typed_name);
  }
  return DidYouMean(name, names);
}

// Lists: the first value replaces the old list; an empty value adds nothing.
Status SetParameter(const Parameter& parameter, const std::string& spelled,
                    const std::string& value, bool first, Request* request) {
  const Variable variable = parameter.of(*request);
  auto* const* strings = std::get_if<std::vector<std::string>*>(&variable);
  if (strings != nullptr && first) (*strings)->clear();
  if (strings != nullptr && value.empty()) return OkStatus();
  if (!IsValidUtf8(value)) return InvalidArgument(spelled + " is not valid UTF-8");
  return parameter.Set(request, spelled, value);
}

// `seen`: the names that this command has already set.
Status Apply(const Assignment& one, std::set<std::string>* seen, Request* request,
             bool* drop_oldest) {
  std::string name = one.name;
  std::replace(name.begin(), name.end(), '-', '_');
  const Parameter* parameter = FindParameter(KuiperName(name));
  const bool found = parameter != nullptr && parameter->in_chats;
  if (found) name = parameter->typed_name;
  const std::string spelled = "/set " + name;
  if (!found && name != kOverflow) {
    return InvalidArgument(spelled + ": there is no such parameter" + Suggestion(one.name),
                           WhereToSet(name));
  }
  if (one.values.empty()) return InvalidArgument(spelled + " needs a value");
  for (const std::string& value : one.values) {
    const bool first = seen->insert(name).second;
    KU_RETURN_IF_ERROR(found ? SetParameter(*parameter, spelled, value, first, request)
                             : SetVariable(OverflowNames(drop_oldest), {}, spelled, value));
  }
  return OkStatus();
}

}  // namespace

NamedValues OverflowNames(bool* drop_oldest) {
  return OneOf(drop_oldest, {{"error", false}, {"drop-oldest", true}});
}

Status ApplySettings(const std::string& assignments, Request* parameters, bool* drop_oldest) {
  KU_ASSIGN_OR_RETURN(const std::vector<Assignment> all, SettingsReader(assignments).Run());
  std::set<std::string> seen;
  std::vector<std::string> mistakes, hints;
  for (const Assignment& one : all) {
    const Status set = Apply(one, &seen, parameters, drop_oldest);
    if (set.ok()) continue;
    mistakes.push_back(set.message(Param));
    if (hints.empty() && !set.hint().empty()) hints.push_back(set.hint(Param));
  }
  if (mistakes.empty()) return OkStatus();
  if (hints.empty()) hints.push_back("/set alone lists the parameters");
  if (mistakes.size() < all.size()) hints.push_back("everything else is set");
  return InvalidArgument(Joined(mistakes, "; "), Joined(hints, "; "));
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
