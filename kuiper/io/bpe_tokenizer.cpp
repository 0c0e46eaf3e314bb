#include "kuiper/io/bpe_tokenizer.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <set>
#include <utility>

#include "kuiper/base/log.h"
#include "kuiper/io/byte_tokens.h"
#include "kuiper/io/joined_text.h"
#include "kuiper/io/normalizer.h"

namespace kuiper {
namespace {

// Words of one run whose ids are already in the output. A slot holds the latest word that hashed
// to it, so the size is bounded and nothing is ever copied.
class WordCache {
 public:
  explicit WordCache(size_t text_size)
      : slots_(std::bit_ceil(std::clamp<size_t>(text_size / 32, 16, 1 << 14))) {}

  struct Slot {
    std::string_view word;
    uint32_t begin = 0, count = 0;  // ids in the output
  };
  static bool Takes(std::string_view word) { return word.size() > 1 && word.size() <= 48; }
  Slot& At(std::string_view word) {
    return slots_[std::hash<std::string_view>()(word) & (slots_.size() - 1)];
  }

 private:
  std::vector<Slot> slots_;
};

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> BpeTokenizer::Create(TokenizerSpec spec,
                                                          const std::string& name) {
  std::unique_ptr<BpeTokenizer> tokenizer(new BpeTokenizer(std::move(spec)));
  KU_RETURN_IF_ERROR(tokenizer->Init(name));
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

Status BpeTokenizer::Init(const std::string& name) {
  for (const std::string& pattern : spec_.split_patterns) {
    if (const auto known = WordSplit::ForPattern(pattern)) {
      splits_.push_back(*known);
      continue;
    }
    StatusOr<SplitRegex> split = SplitRegex::Compile(pattern);
    if (!split.ok()) {
      return Status(StatusCode::kTokenizer,
                    name + ": pre_tokenizer Split: " + split.status().message());
    }
    LogInfo(name + ": the split pattern is not one of those built in; letters and numbers are " +
            SplitRegex::Engine() + "'s");
    splits_.push_back(std::move(split).value());
  }
  KU_ASSIGN_OR_RETURN(model_, BpeModel::Create(&spec_, name));
  KU_RETURN_IF_ERROR(CheckAddedTokens(name));

  size_t num_ids = model_->contents().size();
  for (const AddedToken& token : spec_.added_tokens) {
    num_ids = std::max(num_ids, static_cast<size_t>(token.id) + 1);
  }
  bytes_.resize(num_ids);
  special_.resize(num_ids);
  for (size_t id = 0; id < model_->contents().size(); ++id) {
    bytes_[id] = TokenBytes(model_->contents()[id]);
  }
  for (const AddedToken& token : spec_.added_tokens) {
    bytes_[token.id] = token.content;
    special_[token.id] = token.special;
    if (!token.normalized) {
      raw_matcher_.Add(token.content, token);
    } else {
      std::string storage;
      normalized_matcher_.Add(std::string(Normalize(spec_.normalizer, token.content, &storage)),
                              token);
    }
  }
  if (spec_.bos_token.has_value()) {
    bos_ = TokenId(*spec_.bos_token);
    if (!bos_) bos_ = model_->Find(*spec_.bos_token);
    if (!bos_) {
      return Status(StatusCode::kTokenizer,
                    name + ": bos token \"" + *spec_.bos_token + "\" is not in the vocabulary");
    }
  }
  return OkStatus();
}

Status BpeTokenizer::CheckAddedTokens(const std::string& name) const {
  std::set<std::string_view> contents;
  std::set<int32_t> ids;
  for (const AddedToken& token : spec_.added_tokens) {
    const std::string where = name + ": added token \"" + token.content + "\"";
    const auto error = [&](const std::string& what) {
      return Status(StatusCode::kTokenizer, where + what);
    };
    if (!contents.insert(token.content).second) return error(" appears twice");
    if (!ids.insert(token.id).second)
      return error(": id " + std::to_string(token.id) + " is taken");
    const auto in_vocab = model_->Find(token.content);
    const auto& all = model_->contents();
    const bool id_in_vocab = static_cast<size_t>(token.id) < all.size() && !all[token.id].empty();
    if (in_vocab ? *in_vocab != token.id : id_in_vocab) {
      return error(": id " + std::to_string(token.id) + " differs from the vocabulary's");
    }
    std::string storage;
    if (token.normalized && Normalize(spec_.normalizer, token.content, &storage).empty()) {
      return error(" is empty when normalised");
    }
  }
  return OkStatus();
}

std::string BpeTokenizer::TokenBytes(const std::string& content) const {
  if (spec_.byte_level) return ByteLevelBytes(content);
  std::string text = content;
  for (const auto& [from, to] : spec_.decoder_replace) text = ReplaceAll(text, from, to);
  if (spec_.decoder_byte_fallback) {
    if (const auto byte = ByteFallbackByte(text)) return std::string(1, *byte);
  }
  return text;
}

std::vector<int32_t> BpeTokenizer::EncodePieces(std::span<const TextPiece> pieces) const {
  const JoinedText joined(pieces);
  std::vector<AddedTokenMatcher::Match> matches;
  for (const auto& range : joined.parsed()) {
    raw_matcher_.Find(joined.text(), range.begin, range.end,
                      matches.empty() ? 0 : matches.back().end, &matches);
  }
  std::vector<int32_t> ids;
  ids.reserve(joined.text().size() / 4 + 4);
  BpeModel::Scratch scratch;
  size_t done = 0;
  const auto encode_until = [&](size_t end) {
    if (end <= done) return;
    // Tokens matched after normalising have no place in the text as it is, so a run that mixes
    // both kinds of pieces is not searched for them.
    const bool parse = !normalized_matcher_.empty() && joined.IsParsed(done, end);
    EncodeRun(joined.text().substr(done, end - done), parse, &scratch, &ids);
  };
  for (const auto& match : matches) {
    encode_until(match.begin);
    ids.push_back(match.id);
    done = match.end;
  }
  encode_until(joined.text().size());
  return ids;
}

void BpeTokenizer::EncodeRun(std::string_view text, bool parse_added, BpeModel::Scratch* scratch,
                             std::vector<int32_t>* ids) const {
  std::string storage;
  text = Normalize(spec_.normalizer, text, &storage);
  std::vector<AddedTokenMatcher::Match> matches;
  if (parse_added) normalized_matcher_.Find(text, 0, text.size(), 0, &matches);
  size_t done = 0;
  for (const auto& match : matches) {
    EncodeNormalized(text.substr(done, match.begin - done), scratch, ids);
    ids->push_back(match.id);
    done = match.end;
  }
  EncodeNormalized(text.substr(done), scratch, ids);
}

void BpeTokenizer::EncodeNormalized(std::string_view text, BpeModel::Scratch* scratch,
                                    std::vector<int32_t>* ids) const {
  if (text.empty()) return;
  std::vector<std::string_view> words = {text};
  for (const auto& split : splits_) {
    std::vector<std::string_view> parts;
    parts.reserve(text.size() / 4);
    for (std::string_view word : words) {
      std::visit([&](const auto& kind) { kind.Split(word, &parts); }, split);
    }
    words = std::move(parts);
  }
  WordCache cache(text.size());
  for (std::string_view word : words) {
    if (!WordCache::Takes(word)) {
      model_->Encode(word, scratch, ids);
      continue;
    }
    WordCache::Slot& slot = cache.At(word);
    if (slot.word == word) {
      const size_t begin = ids->size();
      ids->resize(begin + slot.count);
      std::copy_n(ids->begin() + slot.begin, slot.count, ids->begin() + begin);
      continue;
    }
    const size_t begin = ids->size();
    model_->Encode(word, scratch, ids);
    slot = {word, static_cast<uint32_t>(begin), static_cast<uint32_t>(ids->size() - begin)};
  }
}

std::string_view BpeTokenizer::Bytes(int32_t id) const {
  return id >= 0 && static_cast<size_t>(id) < bytes_.size() ? std::string_view(bytes_[id]) : "";
}

bool BpeTokenizer::IsSpecial(int32_t id) const {
  return id >= 0 && static_cast<size_t>(id) < special_.size() && special_[id];
}

std::optional<int32_t> BpeTokenizer::TokenId(std::string_view content) const {
  for (const AddedToken& token : spec_.added_tokens) {
    if (token.content == content) return token.id;
  }
  return std::nullopt;
}

}  // namespace kuiper
