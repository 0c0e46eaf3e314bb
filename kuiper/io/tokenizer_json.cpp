#include "kuiper/io/tokenizer_json.h"

namespace kuiper {
namespace {

// Diverts model.vocab ({"token": id}) and model.merges (["a b", ...] or [["a", "b"], ...]) from the
// tree into arrays: one pass, no tree node per token.
class TokenizerJsonReader : public JsonTreeBuilder {
 public:
  using JsonTreeBuilder::JsonTreeBuilder;

  bool null() override { return IsTree() ? JsonTreeBuilder::null() : WrongType(); }
  bool boolean(bool value) override {
    return IsTree() ? JsonTreeBuilder::boolean(value) : WrongType();
  }
  bool number_integer(number_integer_t value) override {
    return IsTree() ? JsonTreeBuilder::number_integer(value) : TokenId(value);
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (IsTree()) return JsonTreeBuilder::number_unsigned(value);
    return TokenId(value > kMaxTokenId ? kMaxTokenId + 1 : static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    return IsTree() ? JsonTreeBuilder::number_float(value, text) : WrongType();
  }
  bool string(string_t& value) override {
    if (IsTree()) return JsonTreeBuilder::string(value);
    if (state_ == State::kMerges) return SpacedMerge(value);
    return state_ == State::kMergePair ? MergePart(value) : WrongType();
  }
  bool start_object(size_t elements) override {
    if (state_ == State::kTree && IsModelKey("vocab")) {
      state_ = State::kVocab;
      return true;
    }
    return IsTree() ? JsonTreeBuilder::start_object(elements) : WrongType();
  }
  bool key(string_t& value) override {
    if (IsTree()) return JsonTreeBuilder::key(value);
    if (vocab_.size() == kMaxEntries) return TooMany("model.vocab");
    vocab_.push_back({std::move(value), 0});
    return true;
  }
  bool end_object() override {
    if (IsTree()) return JsonTreeBuilder::end_object();
    state_ = State::kTree;
    return JsonTreeBuilder::null();  // the value of "vocab" that stays in the tree
  }
  bool start_array(size_t elements) override {
    if (state_ == State::kMerges) {
      state_ = State::kMergePair;
      num_parts_ = 0;
      return true;
    }
    if (state_ == State::kTree && IsModelKey("merges")) {
      state_ = State::kMerges;
      return true;
    }
    return IsTree() ? JsonTreeBuilder::start_array(elements) : WrongType();
  }
  bool end_array() override {
    if (IsTree()) return JsonTreeBuilder::end_array();
    if (state_ == State::kMergePair) {
      state_ = State::kMerges;
      return num_parts_ == 2 || BadMerge();
    }
    state_ = State::kTree;
    return JsonTreeBuilder::null();
  }

  TokenizerJson Take() { return {std::move(root()), std::move(vocab_), std::move(merges_)}; }

 private:
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
  bool TokenId(int64_t id) {
    if (state_ != State::kVocab) return WrongType();
    vocab_.back().id = id;
    return true;
  }
  bool SpacedMerge(const string_t& value) {
    const size_t space = value.find(' ');
    if (space == string_t::npos || value.find(' ', space + 1) != string_t::npos) return BadMerge();
    return AddMerge(value.substr(0, space), value.substr(space + 1));
  }
  bool MergePart(string_t& value) {
    if (num_parts_ == 2) return BadMerge();
    if (num_parts_++ > 0) return AddMerge(std::move(left_), std::move(value));
    left_ = std::move(value);
    return true;
  }
  bool AddMerge(std::string left, std::string right) {
    if (merges_.size() == kMaxEntries) return TooMany("model.merges");
    merges_.emplace_back(std::move(left), std::move(right));
    return true;
  }
  bool TooMany(const char* what) {
    return Fail(std::string(what) + ": more than " + std::to_string(kMaxEntries) + " entries");
  }

  State state_ = State::kTree;
  std::vector<VocabEntry> vocab_;
  std::vector<std::pair<std::string, std::string>> merges_;
  std::string left_;
  int num_parts_ = 0;
};

}  // namespace

StatusOr<TokenizerJson> ParseTokenizerJson(std::string_view json, const std::string& name) {
  TokenizerJsonReader reader;
  KU_RETURN_IF_ERROR(reader.Parse(json, StatusCode::kTokenizer, name));
  return reader.Take();
}

}  // namespace kuiper
