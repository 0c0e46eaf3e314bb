// Fuzzes OpenAI-style messages and the chat templates that render them.
#include "kuiper/io/messages_json.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kuiper/base/check.h"
#include "kuiper/io/chat_template.h"
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
  for (kuiper::ChatFamily family : {kuiper::ChatFamily::kNone, kuiper::ChatFamily::kQwen25,
                                    kuiper::ChatFamily::kQwen3, kuiper::ChatFamily::kQwen3VL}) {
    (void)kuiper::RenderText(family, parsed->messages, options).ok();
  }
  return 0;
}
