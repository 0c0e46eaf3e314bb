// Where a model's chat template stands: chat_template.jinja, chat_template.json, or
// tokenizer_config.json, in this order, as transformers has it. Reads files, knows no Jinja.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"

namespace kuiper {

struct TemplateFiles {
  std::string name = {};         // of the file that holds the template, for messages; "" = none
  std::string source = {};       // the template
  std::string tool_source = {};  // the one for prompts with tools, if the file has one of its own
  // bos_token, eos_token and the like of tokenizer_config.json.
  std::vector<std::pair<std::string, std::string>> special_tokens = {};
};

// `path`: a model's folder, a file in it, or a .jinja file. A folder without a template gives an
// empty `source`. kModel for files that cannot be read, kTokenizer for JSON that is none.
StatusOr<TemplateFiles> ReadTemplateFiles(const std::string& path);
// The same from texts that a container carries; "" = absent. `name` stands for the container.
StatusOr<TemplateFiles> ParseTemplateFiles(const std::string& jinja,
                                           const std::string& chat_template_json,
                                           const std::string& tokenizer_config_json,
                                           const std::string& name);

}  // namespace kuiper
