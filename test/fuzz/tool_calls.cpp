// Fuzzes both formats of tool calls in a model's output: parsing it whole, in two parts and byte by
// byte must give the same result.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "kuiper/base/check.h"
#include "test/chat/tool_call_pieces.h"

using kuiper::ToolCallFormat;
using kuiper::ToolCallParser;
using kuiper::test::ParseCalls;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2 || size > 4096) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const auto kind = data[0] % 2 == 0 ? ToolCallFormat::Kind::kHermes : ToolCallFormat::Kind::kXml;
  const size_t cut = text.empty() ? 0 : data[1] % text.size();
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < text.size(); ++i) bytes.push_back(text.substr(i, 1));
  const ToolCallParser::Delta whole = ParseCalls(kind, {text});
  for (const auto& pieces : {std::vector{text.substr(0, cut), text.substr(cut)}, bytes}) {
    const ToolCallParser::Delta split = ParseCalls(kind, pieces);
    KU_CHECK(split.text == whole.text && split.calls == whole.calls);
  }
  return 0;
}
