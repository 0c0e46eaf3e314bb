// The built-in templates, parsed once for a test program.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "kuiper/chat/prompt_template.h"

namespace kuiper::test {

// `model_type` as in config.json.
inline const PromptTemplate& DefaultPromptTemplate(const std::string& model_type) {
  static std::map<std::string, PromptTemplate> made;
  const auto found = made.find(model_type);
  if (found != made.end()) return found->second;
  auto parsed = PromptTemplate::Make({}, model_type);
  EXPECT_TRUE(parsed.ok()) << parsed.status().message();
  return made.emplace(model_type, std::move(*parsed)).first->second;
}

}  // namespace kuiper::test
