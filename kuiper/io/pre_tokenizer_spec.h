// Reads the pre-tokenizer of a tokenizer.json as steps. Called by tokenizer_spec.cpp.
#pragma once

#include <string>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"
#include "kuiper/io/tokenizer_spec.h"

namespace kuiper {

// Fills pre_tokenizer and byte_level. `node` may be null; `name` stands for the file in messages.
// `growth`: the factor by which the normalizer may lengthen a text.
Status ReadPreTokenizer(const JsonNode* node, const std::string& name, double growth,
                        TokenizerSpec* spec);

}  // namespace kuiper
