// The Tokenizer of a SentencePiece .model file. Created by tokenizer.cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "kuiper/io/tokenizer.h"

namespace kuiper {

// `model` is the content of the file; `name` stands for the file in messages. `config_json` as in
// Tokenizer::FromJson.
StatusOr<std::unique_ptr<Tokenizer>> CreateSpmTokenizer(std::string_view model,
                                                        std::string_view config_json,
                                                        const std::string& name);

}  // namespace kuiper
