#include "kuiper/io/template_files.h"

#include <filesystem>
#include <system_error>

#include "kuiper/base/text.h"

namespace kuiper {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxBytes = size_t{64} << 20;

// A token is a string, or an object with a content field.
const JsonNode* TokenText(const JsonNode& node) {
  const JsonNode* text = node.IsObject() ? node.Find("content") : &node;
  return text != nullptr && text->IsString() ? text : nullptr;
}

void ReadTokens(const JsonNode& config, TemplateFiles* files) {
  for (size_t i = 0; i < config.keys.size(); ++i) {
    if (!config.keys[i].ends_with("_token")) continue;
    const JsonNode* text = TokenText(config.items[i]);
    if (text != nullptr) files->special_tokens.emplace_back(config.keys[i], text->text);
  }
}

// Reads a template, or the "default" and "tool_use" entries of a list of {"name", "template"}.
Status ReadTemplate(const JsonNode& config, const std::string& name, TemplateFiles* files) {
  const JsonNode* value = config.Find("chat_template");
  if (value == nullptr || value->IsNull()) return OkStatus();
  Status bad(StatusCode::kModel,
             name + ": chat_template is neither a string nor a list of templates");
  if (value->IsString()) {
    files->source = value->text;
  } else if (value->IsArray()) {
    for (const JsonNode& item : value->items) {
      const JsonNode *label = item.Find("name"), *text = item.Find("template");
      if (label == nullptr || text == nullptr || !label->IsString() || !text->IsString()) {
        return bad;
      }
      if (label->text == "default") files->source = text->text;
      if (label->text == "tool_use") files->tool_source = text->text;
    }
    if (files->source.empty()) {
      return Status(StatusCode::kModel, name + ": chat_template has no template \"default\"");
    }
  } else {
    return bad;
  }
  files->name = name;
  return OkStatus();
}

StatusOr<std::string> ReadIfThere(const fs::path& path) {
  std::error_code ignored;
  if (!fs::exists(path, ignored)) return std::string();
  return ReadTextFile(path.string(), kMaxBytes, StatusCode::kModel);
}

Status ReadConfig(const std::string& text, const std::string& name, TemplateFiles* files) {
  if (text.empty()) return OkStatus();
  KU_ASSIGN_OR_RETURN(const JsonNode config, ParseJson(text, StatusCode::kTokenizer, name));
  ReadTokens(config, files);
  return files->source.empty() ? ReadTemplate(config, name, files) : OkStatus();
}

}  // namespace

StatusOr<TemplateFiles> ParseTemplateFiles(const std::string& jinja,
                                           const std::string& chat_template_json,
                                           const std::string& tokenizer_config_json,
                                           const std::string& name) {
  TemplateFiles files;
  files.source = jinja;
  if (!jinja.empty()) files.name = name + ": chat_template.jinja";
  KU_RETURN_IF_ERROR(ReadConfig(chat_template_json, name + ": chat_template.json", &files));
  KU_RETURN_IF_ERROR(ReadConfig(tokenizer_config_json, name + ": tokenizer_config.json", &files));
  return files;
}

StatusOr<TemplateFiles> ReadTemplateFiles(const std::string& path) {
  std::error_code ignored;
  const bool is_folder = fs::is_directory(path, ignored);
  const fs::path folder = is_folder ? fs::path(path) : fs::path(path).parent_path();
  TemplateFiles files;
  const bool is_template = !is_folder && path.ends_with(".jinja");
  const fs::path jinja = is_template ? fs::path(path) : folder / "chat_template.jinja";
  if (is_template) {
    KU_ASSIGN_OR_RETURN(files.source, ReadTextFile(path, kMaxBytes, StatusCode::kModel));
  } else {
    KU_ASSIGN_OR_RETURN(files.source, ReadIfThere(jinja));
  }
  if (!files.source.empty()) files.name = jinja.string();
  const std::string old = (folder / "chat_template.json").string();
  KU_ASSIGN_OR_RETURN(const std::string old_text, ReadIfThere(old));
  KU_RETURN_IF_ERROR(ReadConfig(old_text, old, &files));
  const std::string config = (folder / "tokenizer_config.json").string();
  KU_ASSIGN_OR_RETURN(const std::string config_text, ReadIfThere(config));
  KU_RETURN_IF_ERROR(ReadConfig(config_text, config, &files));
  return files;
}

}  // namespace kuiper
