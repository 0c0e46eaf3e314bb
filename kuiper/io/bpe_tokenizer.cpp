#include "kuiper/io/bpe_tokenizer.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <iterator>
#include <set>
#include <utility>

#include "kuiper/io/byte_tokens.h"

namespace kuiper {
namespace {

// Words of one run whose ids are already in the output. A slot holds the latest word with its hash,
// so the size is bounded and nothing is copied.
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
  std::copy_if(
      spec_.normalizer.begin(), spec_.normalizer.end(), std::back_inserter(inner_normalizer_),
      [](const NormalizerStep& step) { return step.kind != NormalizerStep::Kind::kPrepend; });
  KU_ASSIGN_OR_RETURN(pre_tokenizer_, PreTokenizer::Create(spec_.pre_tokenizer, name));
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
      std::vector<Writer> writers(token.content.size(), Writer::kTemplate);
      const std::string_view pattern =
          Normalize(spec_.normalizer, token.content, &storage, &writers);
      normalized_matcher_.Add(std::string(pattern), token, std::move(writers));
    }
  }
  const auto find = [&](const std::string& token) {
    const std::optional<int32_t> added = TokenId(token);
    return added.has_value() ? added : model_->Find(token);
  };
  if (spec_.eos_token.has_value()) eos_ = find(*spec_.eos_token);
  if (spec_.bos_token.has_value()) {
    bos_ = find(*spec_.bos_token);
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

std::vector<int32_t> BpeTokenizer::EncodePieces(std::span<const TextPiece> pieces,
                                                bool continues) const {
  const JoinedText joined(pieces);
  std::vector<AddedTokenMatcher::Match> matches;
  for (const auto& range : joined.parsed()) {
    const size_t floor = matches.empty() ? 0 : matches.back().end;
    raw_matcher_.Find(joined.text(), range.begin, range.end, floor, &matches);
  }
  std::vector<int32_t> ids;
  ids.reserve(joined.text().size() / 4 + 4);
  BpeModel::Scratch scratch;
  size_t done = 0;
  // What comes before the joined text; EncodeRun uses it for the first run only.
  const TextStart start = continues ? TextStart::kInside : TextStart::kWhole;
  const auto encode_until = [&](size_t end) {
    if (end > done) EncodeRun(joined, done, end, start, &scratch, &ids);
  };
  for (const auto& match : matches) {
    encode_until(match.begin);
    ids.push_back(match.id);
    done = match.end;
  }
  encode_until(joined.text().size());
  return ids;
}

void BpeTokenizer::EncodeRun(const JoinedText& joined, size_t begin, size_t end, TextStart start,
                             BpeModel::Scratch* scratch, std::vector<int32_t>* ids) const {
  const bool is_inside = start == TextStart::kInside && begin == 0;
  const auto& normalizer = is_inside ? inner_normalizer_ : spec_.normalizer;
  std::string_view text = joined.text().substr(begin, end - begin);
  std::vector<Writer> writers;
  if (!normalized_matcher_.empty()) writers = joined.WritersOf(begin, end);
  std::string storage;
  text = Normalize(normalizer, text, &storage, writers.empty() ? nullptr : &writers);
  std::vector<AddedTokenMatcher::Match> matches;
  normalized_matcher_.FindOutsideUserText(text, writers, &matches);
  size_t done = 0;
  const auto encode_until = [&](size_t next) {
    const bool is_start = begin + done == 0;
    EncodeNormalized(text.substr(done, next - done), is_start ? start : TextStart::kAfterToken,
                     scratch, ids);
  };
  for (const auto& match : matches) {
    encode_until(match.begin);
    ids->push_back(match.id);
    done = match.end;
  }
  encode_until(text.size());
}

void BpeTokenizer::EncodeNormalized(std::string_view text, TextStart start,
                                    BpeModel::Scratch* scratch, std::vector<int32_t>* ids) const {
  const PreTokenizer::Words split = pre_tokenizer_.Split(text, start);
  WordCache cache(text.size());
  for (const std::string_view word : split.words) {
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
