#include "kuiper/base/text.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

namespace kuiper {

std::string Quoted(std::string_view text) {
  constexpr size_t kMaxBytes = 120;
  std::string out = "\"";
  for (unsigned char c : text.substr(0, kMaxBytes)) {
    if (c < 0x20 || c == 0x7f) {
      char escaped[8];
      std::snprintf(escaped, sizeof escaped, "\\x%02x", c);
      out += escaped;
    } else {
      out += static_cast<char>(c);
    }
  }
  if (text.size() > kMaxBytes) out += "...";
  return out + '"';
}

bool IsLfsPointer(std::string_view text) {
  return text.starts_with("version https://git-lfs.github.com/spec/");
}

Status LfsPointer(const std::string& path, StatusCode code) {
  return Status(code, path + " is a git-lfs pointer, not the file itself",
                "run `git lfs install && git lfs pull` in its folder");
}

StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes, StatusCode code,
                                   const std::string& kind) {
  std::error_code error;
  // Opening a named pipe would wait for a writer.
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) {
    return Status(code, path + " is not a regular file");
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return Status(code, "cannot open " + kind + path + ": " + std::strerror(errno));
  }
  std::string text;
  char chunk[1 << 16];
  while (in.read(chunk, sizeof chunk), in.gcount() > 0) {
    text.append(chunk, static_cast<size_t>(in.gcount()));
    if (text.size() > max_bytes) {
      return Status(code, path + " is larger than " + std::to_string(max_bytes >> 20) + " MB");
    }
  }
  if (in.bad()) return Status(code, "cannot read " + path + ": " + std::strerror(errno));
  if (IsLfsPointer(text)) return LfsPointer(path, code);
  return text;
}

// Optimal string alignment; `before`, `last` and `row` are rows i - 2, i - 1 and i of the table of
// distances between prefixes.
int EditDistance(std::string_view a, std::string_view b) {
  std::vector<int> before, last, row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int changed = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({changed, last[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string NearestName(std::string_view word, const std::vector<std::string_view>& names) {
  constexpr size_t kLongest = 40;  // a longer word is not a typing error
  if (word.size() > kLongest || names.empty()) return "";
  const auto distance = [&](std::string_view name) {
    return word.size() > 1 && name.starts_with(word) ? 1 : EditDistance(word, name);
  };
  const std::string_view nearest = *std::ranges::min_element(names, {}, distance);
  const int most = std::max<int>(1, static_cast<int>(word.size()) / 3);
  return distance(nearest) <= most ? std::string(nearest) : "";
}

std::string DidYouMean(std::string_view word, const std::vector<std::string_view>& names,
                       std::string_view prefix) {
  const std::string nearest = NearestName(word, names);
  return nearest.empty() ? "" : "; did you mean " + std::string(prefix) + nearest + "?";
}

std::optional<size_t> ReadKey(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    size_t value = 0;
    if (words >> name >> value && name == key) return value;
  }
  return std::nullopt;
}

std::string Counted(int64_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string Megabytes(size_t bytes) {
  return std::to_string(bytes >> 20) + " MB";
}

std::string PercentDecoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const char* const digits = text.data() + i + 1;
    unsigned char byte = 0;
    if (text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      decoded += static_cast<char>(byte);
      i += 2;
    } else {
      decoded += text[i];
    }
  }
  return decoded;
}

}  // namespace kuiper
