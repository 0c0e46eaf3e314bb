// Fuzzes OpenAI-style messages and the chat templates that render them.
#include "kuiper/io/messages_json.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kuiper/base/check.h"
#include "kuiper/chat/prompt_template.h"
#include "kuiper/io/chat_message.h"
#include "kuiper/io/thinking.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  (void)kuiper::PythonJson(json).ok();
  (void)kuiper::SplitThinking(json);
  const auto parsed = kuiper::ParseMessagesJson(json);
  if (!parsed.ok()) return 0;
  KU_CHECK(!parsed->messages.empty(), "no messages");
  kuiper::ChatOptions options;
  options.enable_thinking = parsed->enable_thinking;
  options.tools_json = parsed->tools_json;
  static const auto* const templates =
      new std::vector<kuiper::PromptTemplate>{kuiper::PromptTemplate::Make({}, "llama").value(),
                                              kuiper::PromptTemplate::Make({}, "qwen2").value(),
                                              kuiper::PromptTemplate::Make({}, "qwen3").value(),
                                              kuiper::PromptTemplate::Make({}, "qwen3_vl").value()};
  for (const bool keeps : {false, true}) {
    options.keep_thinking_in_history = keeps;
    for (const kuiper::PromptTemplate& chat_template : *templates) {
      (void)chat_template.Render(parsed->messages, options, std::tm()).ok();
    }
  }
  return 0;
}
