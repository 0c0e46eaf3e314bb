// Implements the algorithm of Unicode, section 3.11, and the Hangul arithmetic of section 3.12.
// Only stretches that may change are decomposed: from the character before one that is not inert up
// to the next inert one.
#include "kuiper/io/nfc.h"

#include <algorithm>
#include <array>
#include <vector>

#include "kuiper/io/unicode_tables.h"
#include "kuiper/io/utf8.h"

namespace kuiper {
namespace {

using unicode::Decomposition;

constexpr char32_t kHangulBase = 0xAC00, kLeadBase = 0x1100, kVowelBase = 0x1161,
                   kTailBase = 0x11A7;
constexpr char32_t kNumLeads = 19, kNumVowels = 21, kNumTails = 28;
constexpr char32_t kNumHangul = kNumLeads * kNumVowels * kNumTails;

constexpr auto kByCode = unicode::ReadDecompositions();

// The pairs that compose, sorted by first and second.
constexpr auto kByPair = [] {
  std::array<Decomposition, unicode::kNumCompositions> pairs = {};
  std::copy_if(kByCode.begin(), kByCode.end(), pairs.begin(),
               [](const Decomposition& entry) { return entry.composes; });
  std::sort(pairs.begin(), pairs.end(), [](const Decomposition& a, const Decomposition& b) {
    return a.first != b.first ? a.first < b.first : a.second < b.second;
  });
  return pairs;
}();

// 0: inert, that is a starter (combining class 0) that is its own NFC and never composes with a
// character before it. 255: any other starter. Otherwise the combining class.
constexpr unicode::RunTable<unicode::kNumCombining> kClasses(unicode::kCombining, 256);
static_assert(kClasses.CoversAll());

constexpr char32_t kFirstNotInert = 0x300;
static_assert([] {
  char32_t c = 0;
  while (kClasses.At(c) == 0) ++c;
  return c == kFirstNotInert;
}());

bool IsInert(char32_t c) {
  return c < kFirstNotInert || kClasses.At(c) == 0;
}

struct Character {
  char32_t code = 0;
  uint8_t combining_class = 0;
};

void Append(char32_t c, std::vector<Character>* out) {
  const uint8_t value = kClasses.At(c);
  out->push_back({c, value == 255 ? uint8_t{0} : value});
}

void AppendDecomposed(char32_t c, std::vector<Character>* out) {
  if (c >= kHangulBase && c < kHangulBase + kNumHangul) {
    const char32_t index = c - kHangulBase;
    Append(kLeadBase + index / (kNumVowels * kNumTails), out);
    Append(kVowelBase + index / kNumTails % kNumVowels, out);
    if (index % kNumTails != 0) Append(kTailBase + index % kNumTails, out);
    return;
  }
  const auto found =
      std::lower_bound(kByCode.begin(), kByCode.end(), c,
                       [](const Decomposition& entry, char32_t code) { return entry.code < code; });
  if (found == kByCode.end() || found->code != c) return Append(c, out);
  // The recursion is at most three deep; only the first part decomposes further.
  AppendDecomposed(found->first, out);
  if (found->second != 0) AppendDecomposed(found->second, out);
}

// Returns the composite of a pair; 0 if there is none.
char32_t Compose(char32_t a, char32_t b) {
  if (a >= kLeadBase && a < kLeadBase + kNumLeads && b >= kVowelBase &&
      b < kVowelBase + kNumVowels) {
    return kHangulBase + ((a - kLeadBase) * kNumVowels + (b - kVowelBase)) * kNumTails;
  }
  if (a >= kHangulBase && a < kHangulBase + kNumHangul && (a - kHangulBase) % kNumTails == 0 &&
      b > kTailBase && b < kTailBase + kNumTails) {
    return a + (b - kTailBase);
  }
  const auto found =
      std::lower_bound(kByPair.begin(), kByPair.end(), Decomposition{0, a, b},
                       [](const Decomposition& x, const Decomposition& y) {
                         return x.first != y.first ? x.first < y.first : x.second < y.second;
                       });
  return found != kByPair.end() && found->first == a && found->second == b ? found->code : 0;
}

// Puts marks into canonical order.
void Reorder(std::vector<Character>* text) {
  for (auto begin = text->begin(); begin != text->end();) {
    if (begin->combining_class == 0) {
      ++begin;
      continue;
    }
    const auto end =
        std::find_if(begin, text->end(), [](const Character& c) { return c.combining_class == 0; });
    std::stable_sort(begin, end, [](const Character& a, const Character& b) {
      return a.combining_class < b.combining_class;
    });
    begin = end;
  }
}

void AppendComposed(const std::vector<Character>& text, std::string* out) {
  std::vector<Character> composed;
  composed.reserve(text.size());
  Character* starter = nullptr;  // the latest one, in `composed`
  for (const Character& c : text) {
    if (starter != nullptr) {
      const Character& last = composed.back();
      // A character between c and the starter blocks c, unless its class is lower than c's.
      const bool reaches = &last == starter || last.combining_class < c.combining_class;
      const char32_t composite = reaches ? Compose(starter->code, c.code) : 0;
      if (composite != 0) {
        starter->code = composite;
        continue;
      }
    }
    composed.push_back(c);
    if (c.combining_class == 0) starter = &composed.back();
  }
  for (const Character& c : composed) AppendUtf8(c.code, out);
}

}  // namespace

bool IsSurelyNfc(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = NextUtf8(text);
    if (!IsInert(step.code_point)) return false;
    text.remove_prefix(step.num_bytes);
  }
  return true;
}

std::string_view NfcPart(std::string_view text) {
  size_t end = NextUtf8(text).num_bytes;
  while (end < text.size()) {
    const Utf8Step step = NextUtf8(text.substr(end));
    if (IsInert(step.code_point)) break;
    end += step.num_bytes;
  }
  return text.substr(0, end);
}

std::string Nfc(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::vector<Character> changing;
  size_t done = 0;  // everything before it is in `out`
  size_t last = 0;  // where the character before `pos` starts
  for (size_t pos = 0; pos < text.size();) {
    Utf8Step step = NextUtf8(text.substr(pos));
    if (IsInert(step.code_point)) {
      last = pos;
      pos += step.num_bytes;
      continue;
    }
    out.append(text.substr(done, last - done));
    changing.clear();
    for (pos = last; pos < text.size(); pos += step.num_bytes) {
      step = NextUtf8(text.substr(pos));
      if (pos > last && IsInert(step.code_point)) break;
      AppendDecomposed(step.code_point, &changing);
    }
    Reorder(&changing);
    AppendComposed(changing, &out);
    done = last = pos;
  }
  return out.append(text.substr(done));
}

}  // namespace kuiper
