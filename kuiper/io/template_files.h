// Where a model's chat template stands: chat_template.jinja, chat_template.json, or
// tokenizer_config.json, in this order, as transformers has it. Reads files, knows no Jinja.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"

namespace kuiper {

struct TemplateFiles {
  std::string name = {};    // names the file that holds the template, for messages; "" = none
  std::string source = {};  // the template
  std::string tool_source =
      {};  // the template for prompts with tools, if the file has a second one
  // bos_token, eos_token and the like of tokenizer_config.json.
  std::vector<std::pair<std::string, std::string>> special_tokens = {};
};

// `path`: a model's folder, a file in it, or a .jinja file. A folder without a template gives an
// empty `source`. kModel for files that cannot be read, kTokenizer for JSON that is none.
StatusOr<TemplateFiles> ReadTemplateFiles(const std::string& path);
// Takes the same texts from a container; "" = absent. `name` stands for the container.
StatusOr<TemplateFiles> ParseTemplateFiles(const std::string& jinja,
                                           const std::string& chat_template_json,
                                           const std::string& tokenizer_config_json,
                                           const std::string& name);

// The official template of a family, for models that bring none. model_type of config.json is
// "qwen2", "qwen3" or "qwen3_vl"; for any other, the messages' texts are joined and `name` is "".
TemplateFiles DefaultTemplate(std::string_view model_type);

}  // namespace kuiper
