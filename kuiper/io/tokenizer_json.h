// Parses a tokenizer.json: the small components as a tree, the vocabulary and merges (nearly all of
// the file) as plain arrays. Used by tokenizer_spec.cpp only.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"
#include "kuiper/io/tokenizer_spec.h"

namespace kuiper {

struct TokenizerJson {
  JsonNode root;  // without model.vocab and model.merges
  std::vector<VocabEntry> vocab;
  MergeList merges;
};

StatusOr<TokenizerJson> ParseTokenizerJson(std::string_view json, const std::string& name);

}  // namespace kuiper
