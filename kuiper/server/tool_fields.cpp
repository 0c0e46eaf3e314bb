#include "kuiper/server/tool_fields.h"

#include <algorithm>
#include <utility>

#include "kuiper/base/errors.h"
#include "kuiper/base/text.h"
#include "kuiper/chat/foreign_fields.h"
#include "kuiper/server/body_fields.h"
#include "kuiper/server/json_fields.h"

namespace kuiper {
namespace {

constexpr char kNoForcedCalls[] = "there is no constrained decoding; \"auto\" and \"none\" are";

// True if the client executes the tool. The server would have to execute any other tool.
bool IsFunction(const JsonNode& tool) {
  const JsonNode* type = tool.Find("type");
  return !tool.IsObject() || type == nullptr || type->IsNull() ||
         TextOfField(tool, "type") == "function";
}

// Removes the tools that are not functions. Agents offer such tools to every server.
void DropForeignTools(JsonNode* tools, std::vector<std::string>* dropped) {
  std::erase_if(tools->items, [&](const JsonNode& tool) {
    if (IsFunction(tool)) return false;
    dropped->push_back(TextOfField(tool, "type"));
    return true;
  });
}

// Returns the name in {"type": "function", "function": {"name": ...}} or in a bare function.
std::string FunctionName(const JsonNode& tool) {
  const JsonNode* function = tool.Find("function");
  return TextOfField(function == nullptr ? tool : *function, "name");
}

// Keeps only the listed tools. `choice` is {"type": "allowed_tools", "mode": "auto", "tools":
// [...]}; "mode" and "tools" may also be in an object "allowed_tools".
Status KeepAllowedTools(const JsonNode& choice, JsonNode* tools) {
  const JsonNode* nested = choice.Find("allowed_tools");
  const JsonNode& allowed = nested == nullptr ? choice : *nested;
  if (TextOfField(allowed, "mode") != "auto")
    return UnsupportedField("tool_choice", kNoForcedCalls);
  const JsonNode* list = allowed.Find("tools");
  if (list == nullptr || !list->IsArray()) {
    return InputError(Param("tool_choice") + " has no list of the tools that are allowed");
  }
  for (const JsonNode& name : list->items) {
    const auto is_it = [&](const JsonNode& tool) {
      return FunctionName(tool) == FunctionName(name);
    };
    if (IsFunction(name) && std::ranges::none_of(tools->items, is_it)) {
      return InputError(Param("tool_choice") + " allows " + Quoted(FunctionName(name)) +
                        ", which is none of the tools");
    }
  }
  std::erase_if(tools->items, [&](const JsonNode& tool) {
    return std::ranges::none_of(list->items, [&](const JsonNode& name) {
      return FunctionName(name) == FunctionName(tool);
    });
  });
  return OkStatus();
}

// Returns the word or the object's type; "auto" if there is neither.
StatusOr<std::string> WordOfChoice(const JsonNode& choice) {
  const std::string word = choice.IsObject() ? TextOfField(choice, "type") : choice.text;
  for (const char* known : {"auto", "none", "allowed_tools"}) {
    if (word == known) return word;
  }
  if (IsNothing(choice)) return std::string("auto");
  if (word == "required" || choice.IsObject())
    return UnsupportedField("tool_choice", kNoForcedCalls);
  return InputError(Param("tool_choice") + " is neither \"auto\" nor \"none\"");
}

}  // namespace

Status ChooseTools(JsonNode* body, std::vector<std::string>* dropped) {
  JsonNode tools = TakeField(body, "tools");
  const JsonNode choice = TakeField(body, "tool_choice");
  KU_ASSIGN_OR_RETURN(const std::string word, WordOfChoice(choice));
  if (word == "none" || tools.IsNull()) return OkStatus();
  if (!tools.IsArray()) return InputError(Param("tools") + " is not a list");
  DropForeignTools(&tools, dropped);
  if (word == "allowed_tools") KU_RETURN_IF_ERROR(KeepAllowedTools(choice, &tools));
  if (!tools.items.empty()) SetField(body, "tools", std::move(tools));
  return OkStatus();
}

std::string DroppedToolsWarning(const std::vector<std::string>& types) {
  constexpr size_t kLongest = 200;
  std::string names;
  for (const std::string& type : types) names += (names.empty() ? "" : ", ") + type;
  if (names.size() > kLongest) names = names.substr(0, kLongest) + "...";
  std::ranges::replace_if(
      names, [](unsigned char c) { return c < 0x20 || c > 0x7E || c == '"' || c == '\\'; }, '?');
  return "299 - \"the model was not offered these tools, which are no functions: " + names + "\"";
}

}  // namespace kuiper
