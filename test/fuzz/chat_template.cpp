// Fuzzes the interpreter of chat templates. Input: a template, then a zero byte and the JSON of its
// variables (without them: a conversation). Limits are small, so that runaway work shows.
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <string_view>

#include "kuiper/base/check.h"
#include "kuiper/base/json.h"
#include "kuiper/jinja/template.h"

namespace {

constexpr std::string_view kConversation =
    R"({"messages":[{"role":"system","content":"S"},{"role":"user","content":"<think>ä</think>"},)"
    R"({"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":{"a":)"
    R"([1,2.5,"x",true,null,123456789012345678901]}}}]}],"tools":[{"a":{"b":1}}],"n":-3,"s":" a b"})";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace jinja = kuiper::jinja;
  std::string_view source(reinterpret_cast<const char*>(data), size);
  std::string_view text = kConversation;
  if (const size_t end = source.find('\0'); end != std::string_view::npos) {
    text = source.substr(end + 1);
    source = source.substr(0, end);
  }
  const auto parsed = jinja::Template::Parse(source);
  const auto json = kuiper::ParseJson(text, kuiper::StatusCode::kInput, "variables");
  if (!parsed.ok() || !json.ok()) return 0;
  jinja::Heap heap(size_t{16} << 20);
  jinja::Template::Variables variables;
  for (size_t i = 0; i < json->keys.size(); ++i) {
    variables.emplace_back(json->keys[i], heap.FromJson(json->items[i], jinja::kData));
  }
  const jinja::Limits limits{.steps = 100'000, .output_bytes = size_t{1} << 20, .depth = 200};
  const auto rendered = parsed->Render(variables, std::tm(), limits, &heap);
  if (!rendered.ok()) return 0;
  KU_CHECK(rendered->text.size() <= limits.output_bytes, "more text than allowed");
  size_t total = 0;
  for (const jinja::Run& run : rendered->runs) total += run.length;
  KU_CHECK(total == rendered->text.size(), "the runs do not cover the text");
  return 0;
}
