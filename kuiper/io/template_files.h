// Finds a model's chat template: in chat_template.jinja, chat_template.json, or
// tokenizer_config.json, in this order, as transformers does. Only reads files; parses no Jinja.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"

namespace kuiper {

struct TemplateFiles {
  std::string name = {};         // name of the file with the template, for messages; "" = none
  std::string source = {};       // the template
  std::string tool_source = {};  // the template for prompts with tools, if there is a separate one
  // Special tokens of tokenizer_config.json: bos_token, eos_token and similar.
  std::vector<std::pair<std::string, std::string>> special_tokens = {};
};

// `path`: a model's folder, a file in it, or a .jinja file. If a folder has no template, `source`
// is empty. kModel if a file cannot be read, kTokenizer for invalid JSON.
StatusOr<TemplateFiles> ReadTemplateFiles(const std::string& path);
// Reads the same files from texts in a container; "" = absent. `name` stands for the container.
StatusOr<TemplateFiles> ParseTemplateFiles(const std::string& jinja,
                                           const std::string& chat_template_json,
                                           const std::string& tokenizer_config_json,
                                           const std::string& name);

// The official template of a family, for models that bring none. model_type of config.json is
// "qwen2", "qwen3" or "qwen3_vl"; for any other, the messages' texts are joined and `name` is "".
TemplateFiles DefaultTemplate(std::string_view model_type);

}  // namespace kuiper
