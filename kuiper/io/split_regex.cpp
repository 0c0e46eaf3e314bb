#define PCRE2_CODE_UNIT_WIDTH 8
#include "kuiper/io/split_regex.h"

#include <pcre2.h>

#include <cctype>
#include <cstdint>
#include <utility>

namespace kuiper {
namespace {

constexpr size_t kMaxPatternLength = 4096;

// Unicode White_Space, as the content of a class. PCRE2's own \s with UCP adds U+180E.
constexpr char kWhiteSpace[] =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";

class Translator {
 public:
  explicit Translator(std::string_view in) : in_(in) {}

  StatusOr<std::string> Run() {
    while (pos_ < in_.size()) KU_RETURN_IF_ERROR(in_class_ ? ClassItem() : Item());
    if (in_class_) return Error("unclosed [");
    return std::move(out_);
  }

 private:
  static Status Error(const std::string& what) {
    return Status(StatusCode::kTokenizer, "regular expression: " + what);
  }

  bool At(std::string_view text) const { return in_.substr(pos_, text.size()) == text; }
  void Copy(size_t count) {
    out_.append(in_.substr(pos_, count));
    pos_ += count;
  }

  Status Item() {
    const char c = in_[pos_];
    switch (c) {
      case '\\':
        return Escape();
      case '[':
        in_class_ = true;
        Copy(1);
        if (At("^")) Copy(1);
        if (At("]")) return Error("] at the start of a class is not supported");
        return OkStatus();
      case '(':
        if (!At("(?")) break;
        for (const char* group : {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"}) {
          if (At(group)) {
            Copy(std::string_view(group).size());
            return OkStatus();
          }
        }
        return Error("group " + std::string(in_.substr(pos_, 4)) + " is not supported");
      case '{':
        return Repeat();
      case '^':
      case '$':
      case '.':
        // The two engines disagree on what a line is.
        return Error(std::string("unescaped ") + c + " is not supported");
      default:
        break;
    }
    Copy(1);
    return OkStatus();
  }

  // {n}, {n,} or {n,m}; a + after it is possessive in PCRE2 and another repeat in Oniguruma.
  Status Repeat() {
    const size_t end = in_.find('}', pos_);
    const std::string_view body =
        end == std::string_view::npos ? "" : in_.substr(pos_ + 1, end - pos_ - 1);
    if (body.empty() || !std::isdigit(static_cast<unsigned char>(body[0])) ||
        body.find_first_not_of("0123456789,") != std::string_view::npos) {
      return Error("{ that starts no repeat is not supported");
    }
    Copy(end - pos_ + 1);
    return At("+") ? Error("+ after {} is not supported") : OkStatus();
  }

  Status ClassItem() {
    if (At("\\")) return Escape();
    if (At("&&") || At("[^") || At("[:")) return Error("this nested class is not supported");
    // In Oniguruma a nested class adds its characters to the outer one.
    if (At("[")) {
      ++pos_;
      ++nested_;
      return At("]") ? Error("] at the start of a class is not supported") : OkStatus();
    }
    if (At("]") && nested_ > 0) {
      ++pos_;
      --nested_;
      return OkStatus();
    }
    if (At("]")) in_class_ = false;
    Copy(1);
    return OkStatus();
  }

  Status Escape() {
    if (pos_ + 1 == in_.size()) return Error("\\ at the end");
    const char c = in_[pos_ + 1];
    const std::string shown(in_.substr(pos_, 2));
    if (c == 's' || c == 'S') {
      if (in_class_ && c == 'S') return Error("\\S in a class is not supported");
      if (in_class_) {
        out_ += kWhiteSpace;
      } else {
        out_ += std::string(c == 's' ? "[" : "[^") + kWhiteSpace + "]";
      }
      pos_ += 2;
      return OkStatus();
    }
    if (c == 'p' || c == 'P') {
      const size_t end = At(shown + "{") ? in_.find('}', pos_) : std::string_view::npos;
      if (end == std::string_view::npos) return Error(shown + " without {name}");
      Copy(end - pos_ + 1);
      return OkStatus();
    }
    if (std::isalnum(static_cast<unsigned char>(c)) && c != 'r' && c != 'n' && c != 't' &&
        c != 'd' && c != 'D') {
      return Error(shown + " is not supported");
    }
    Copy(2);
    return OkStatus();
  }

  std::string_view in_;
  size_t pos_ = 0;
  std::string out_;
  bool in_class_ = false;
  int nested_ = 0;  // open classes inside the current one
};

}  // namespace

StatusOr<std::string> TranslateRegex(std::string_view pattern) {
  if (pattern.size() > kMaxPatternLength) {
    return Status(StatusCode::kTokenizer, "regular expression: longer than " +
                                              std::to_string(kMaxPatternLength) + " bytes");
  }
  return Translator(pattern).Run();
}

struct SplitRegex::Code {
  ~Code() { pcre2_code_free(code); }
  pcre2_code* code = nullptr;
};

SplitRegex::SplitRegex(std::unique_ptr<Code> code) : code_(std::move(code)) {}
SplitRegex::SplitRegex(SplitRegex&&) noexcept = default;
SplitRegex& SplitRegex::operator=(SplitRegex&&) noexcept = default;
SplitRegex::~SplitRegex() = default;

StatusOr<SplitRegex> SplitRegex::Compile(std::string_view pattern) {
  KU_ASSIGN_OR_RETURN(const std::string translated, TranslateRegex(pattern));
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_unique<Code>();
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  if (code->code == nullptr) {
    PCRE2_UCHAR message[128] = {};
    pcre2_get_error_message(error, message, sizeof(message));
    return Status(StatusCode::kTokenizer,
                  std::string("regular expression: ") + reinterpret_cast<char*>(message));
  }
  // Without JIT the interpreter gives the same matches.
  (void)pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);
  return SplitRegex(std::move(code));
}

std::string SplitRegex::Engine() {
  char version[64] = {}, unicode[64] = {};
  pcre2_config(PCRE2_CONFIG_VERSION, version);
  pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, unicode);
  const std::string number = version;
  return "PCRE2 " + number.substr(0, number.find(' ')) + " (Unicode " + unicode + ")";
}

void SplitRegex::Cut(std::string_view text, std::vector<SplitPart>* parts) const {
  struct MatchData {
    explicit MatchData(const pcre2_code* code)
        : data(pcre2_match_data_create_from_pattern(code, nullptr)) {}
    ~MatchData() { pcre2_match_data_free(data); }
    pcre2_match_data* data;
  } match(code_->code);
  KU_CHECK(match.data != nullptr, "out of memory");
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* range = pcre2_get_ovector_pointer(match.data);

  size_t done = 0;   // everything before it is in `parts`
  size_t start = 0;  // where the next match may begin
  bool after_match = false;
  while (start <= text.size() && !text.empty()) {
    int result = pcre2_match(code_->code, subject, text.size(), start, PCRE2_NO_UTF_CHECK,
                             match.data, nullptr);
    if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
      // The interpreter keeps its backtracking points on the heap.
      result = pcre2_match(code_->code, subject, text.size(), start,
                           PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match.data, nullptr);
    }
    // No match, or the expression backtracks beyond PCRE2's limits: the remaining text is one part.
    if (result < 0) break;
    const size_t begin = range[0], end = range[1];
    if (begin < done || end < begin || (begin == end && after_match && end == done)) {
      // An empty match at the end of another one does not count.
      ++start;
      while (start < text.size() && (text[start] & 0xC0) == 0x80) ++start;
      continue;
    }
    if (begin > done) parts->push_back({text.substr(done, begin - done), false});
    parts->push_back({text.substr(begin, end - begin), true});
    done = start = end;
    after_match = true;
  }
  if (done < text.size()) parts->push_back({text.substr(done), false});
}

}  // namespace kuiper
