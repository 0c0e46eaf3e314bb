#include "kuiper/io/tokenizer_json.h"

#include <algorithm>

#include "kuiper/base/plain_json.h"

namespace kuiper {
namespace {

// Reads model.vocab ({"token": id}) and model.merges (["a b", ...] or [["a", "b"], ...]) into
// arrays, not into the tree: one pass, no tree node per token.
class TokenizerJsonReader : public JsonTreeBuilder {
 public:
  explicit TokenizerJsonReader(size_t json_bytes) {
    constexpr size_t kBytesPerEntry = 64;  // a guess: Qwen's files have 75, with merges
    vocab_.reserve(json_bytes / kBytesPerEntry);
  }

  bool Value(JsonNode value) override {
    if (IsTree()) return JsonTreeBuilder::Value(std::move(value));
    const bool out_of_range = state_ == State::kVocab && value.type == JsonNode::Type::kInt;
    return out_of_range ? Unsigned(kMaxTokenId + 1) : WrongType();
  }
  bool String(std::string text) override {
    if (state_ == State::kMerges) return SpacedMerge(text) && TakePlain(&Reader::PlainSpacedMerge);
    if (state_ == State::kMergePair) {
      return MergePart(std::move(text)) && (num_parts_ < 2 || TakePlain(&Reader::PlainMergePair));
    }
    return JsonTreeBuilder::String(std::move(text));
  }
  bool Unsigned(uint64_t number) override {
    if (state_ != State::kVocab) return JsonTreeBuilder::Unsigned(number);
    vocab_.back().id = static_cast<int64_t>(std::min(number, uint64_t{kMaxTokenId + 1}));
    return true;
  }
  bool BeginObject() override {
    if (state_ == State::kTree && IsModelKey("vocab")) {
      state_ = State::kVocab;
      return true;
    }
    return IsTree() ? JsonTreeBuilder::BeginObject() : WrongType();
  }
  bool Key(std::string text) override {
    if (IsTree()) return JsonTreeBuilder::Key(std::move(text));
    return AddToken(std::move(text)) && TakePlain(&Reader::PlainToken);
  }
  bool EndObject() override {
    if (IsTree()) return JsonTreeBuilder::EndObject();
    state_ = State::kTree;
    return JsonTreeBuilder::Value({});  // the value that replaces "vocab" in the tree
  }
  bool BeginArray() override {
    if (state_ == State::kMerges) {
      state_ = State::kMergePair;
      num_parts_ = 0;
      return true;
    }
    if (state_ == State::kTree && IsModelKey("merges")) {
      state_ = State::kMerges;
      return true;
    }
    return IsTree() ? JsonTreeBuilder::BeginArray() : WrongType();
  }
  bool EndArray() override {
    if (IsTree()) return JsonTreeBuilder::EndArray();
    if (state_ == State::kMergePair) {
      state_ = State::kMerges;
      return num_parts_ == 2 || BadMerge();
    }
    state_ = State::kTree;
    return JsonTreeBuilder::Value({});
  }

  TokenizerJson Take() { return {std::move(root()), std::move(vocab_), std::move(merges_)}; }

 private:
  using Reader = TokenizerJsonReader;
  enum class State { kTree, kVocab, kMerges, kMergePair };
  static constexpr size_t kMaxEntries = kMaxTokenId + 1;

  bool IsTree() const { return state_ == State::kTree; }
  bool IsModelKey(const char* name) const {
    return depth() == 2 && IsObjectAt(0) && IsObjectAt(1) && KeyAt(0) == "model" &&
           KeyAt(1) == name;
  }
  bool WrongType() {
    return state_ == State::kVocab
               ? Fail("model.vocab: value of \"" + vocab_.back().content + "\" is not a token id")
               : BadMerge();
  }
  bool BadMerge() {
    return Fail("model.merges: entry " + std::to_string(merges_.size()) +
                " is not a pair of tokens");
  }
  bool AddToken(std::string text) {
    if (vocab_.size() == kMaxEntries) return TooMany("model.vocab");
    vocab_.push_back({std::move(text), 0});
    return true;
  }
  bool SpacedMerge(std::string_view value) {
    const size_t space = value.find(' ');
    if (space == std::string::npos || value.find(' ', space + 1) != std::string::npos)
      return BadMerge();
    return AddMerge(value.substr(0, space), value.substr(space + 1));
  }
  bool MergePart(std::string value) {
    if (num_parts_ == 2) return BadMerge();
    if (num_parts_++ > 0) return AddMerge(left_, value);
    left_ = std::move(value);
    return true;
  }
  bool AddMerge(std::string_view left, std::string_view right) {
    if (merges_.size() == kMaxEntries) return TooMany("model.merges");
    merges_.Add(left, right);
    return true;
  }
  // Takes the plain entries that follow: in most documents all but the first.
  bool TakePlain(bool (Reader::*take)(PlainJson*)) {
    PlainJson taken(Ahead());
    PlainJson next = taken;
    while ((this->*take)(&next)) taken = next;
    Skip(taken.num_taken());
    return true;
  }
  // Reads the id of the last token and the next token.
  bool PlainToken(PlainJson* json) {
    uint64_t id;
    std::string_view token;
    if (vocab_.size() == kMaxEntries || !json->Mark(':') || !json->Unsigned(&id) ||
        !json->Mark(',') || !json->String(&token)) {
      return false;
    }
    return Unsigned(id) && AddToken(std::string(token));
  }
  bool PlainSpacedMerge(PlainJson* json) {
    std::string_view merge;
    if (merges_.size() == kMaxEntries || !json->Mark(',') || !json->String(&merge)) return false;
    return std::count(merge.begin(), merge.end(), ' ') == 1 && SpacedMerge(merge);
  }
  // Reads the end of one pair and the next pair without its end.
  bool PlainMergePair(PlainJson* json) {
    std::string_view left, right;
    if (merges_.size() == kMaxEntries || !json->Mark(']') || !json->Mark(',') || !json->Mark('[') ||
        !json->String(&left) || !json->Mark(',') || !json->String(&right)) {
      return false;
    }
    return AddMerge(left, right);
  }
  bool TooMany(const char* what) {
    return Fail(std::string(what) + ": more than " + std::to_string(kMaxEntries) + " entries");
  }

  State state_ = State::kTree;
  std::vector<VocabEntry> vocab_;
  MergeList merges_;
  std::string left_;
  int num_parts_ = 0;
};

}  // namespace

StatusOr<TokenizerJson> ParseTokenizerJson(std::string_view json, const std::string& name) {
  TokenizerJsonReader reader(json.size());
  KU_RETURN_IF_ERROR(reader.Read(json, StatusCode::kTokenizer, name));
  return reader.Take();
}

}  // namespace kuiper
