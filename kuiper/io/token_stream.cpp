#include "kuiper/io/token_stream.h"

#include "kuiper/io/utf8.h"

namespace kuiper {

TokenStream::TokenStream(const Tokenizer& tokenizer, Options options)
    : tokenizer_(&tokenizer),
      options_(options),
      strip_space_(options.at_text_start && tokenizer.StripsLeadingSpace()) {}

std::string TokenStream::Push(int32_t id) {
  pending_.append(BytesOf(id));
  return TakeComplete();
}

bool TokenStream::BreaksOffCharacter(int32_t id) const {
  if (pending_.empty()) return false;
  const Utf8Step step = NextUtf8(pending_ + std::string(BytesOf(id)));
  return step.kind == Utf8Step::Kind::kInvalid &&
         static_cast<size_t>(step.num_bytes) <= pending_.size();
}

std::string_view TokenStream::BytesOf(int32_t id) const {
  if (options_.skip_special && tokenizer_->IsSpecial(id)) return {};
  return tokenizer_->Bytes(id);
}

std::string TokenStream::TakeComplete() {
  std::string_view rest = pending_;
  if (strip_space_ && !rest.empty()) {
    if (rest.front() == ' ') rest.remove_prefix(1);
    strip_space_ = false;
  }
  std::string out;
  while (!rest.empty()) {
    const Utf8Step step = NextUtf8(rest);
    if (step.kind == Utf8Step::Kind::kIncomplete) break;
    if (step.kind == Utf8Step::Kind::kValid) {
      out.append(rest.substr(0, step.num_bytes));
    } else {
      AppendUtf8(step.code_point, &out);
    }
    rest.remove_prefix(step.num_bytes);
  }
  pending_.erase(0, pending_.size() - rest.size());
  return out;
}

std::string TokenStream::Finish() {
  // The pending bytes are one incomplete character, hence one replacement.
  std::string out = ReplaceInvalidUtf8(pending_);
  pending_.clear();
  return out;
}

std::string DecodeTokens(const Tokenizer& tokenizer, std::span<const int32_t> ids,
                         TokenStream::Options options) {
  TokenStream stream(tokenizer, options);
  std::string out;
  for (int32_t id : ids) out += stream.Push(id);
  return out + stream.Finish();
}

}  // namespace kuiper
