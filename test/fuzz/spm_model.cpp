// Fuzzes SentencePiece .model files: an accepted tokenizer must encode any text to valid ids, and
// the ids must decode to valid UTF-8.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/check.h"
#include "kuiper/io/spm_tokenizer.h"
#include "kuiper/io/token_stream.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view model(reinterpret_cast<const char*>(data), size);
  const auto tokenizer = kuiper::CreateSpmTokenizer(model, "", "fuzz.model");
  if (!tokenizer.ok()) return 0;
  const std::string text = "Hello 42\n  w\xc3\xb6rld \xe4\xbd\xa0\xe5\xa5\xbd <s>\xff a\xcc\x81";
  const std::vector<int32_t> ids = (*tokenizer)->Encode(text);
  for (int32_t id : ids) KU_CHECK(0 <= id && id <= (*tokenizer)->max_id(), "id out of range");
  (void)kuiper::DecodeTokens(**tokenizer, ids);
  return 0;
}
