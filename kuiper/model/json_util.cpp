#include "kuiper/model/json_util.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

namespace kuiper {
namespace {

using Json = nlohmann::json;

// Walks the text without building anything, so that depth is bounded before memory is spent.
class SyntaxChecker : public nlohmann::json_sax<Json> {
 public:
  static constexpr int kMaxDepth = 32;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool key(string_t&) override { return true; }
  bool start_object(size_t) override { return Deeper(); }
  bool end_object() override { return --depth_, true; }
  bool start_array(size_t) override { return Deeper(); }
  bool end_array() override { return --depth_, true; }
  bool parse_error(size_t position, const std::string&, const Json::exception&) override {
    error_byte_ = position;
    return false;
  }

  bool too_deep() const { return depth_ > kMaxDepth; }
  size_t error_byte() const { return error_byte_; }

 private:
  bool Deeper() { return ++depth_ <= kMaxDepth; }

  int depth_ = 0;
  size_t error_byte_ = 0;
};

}  // namespace

StatusOr<Json> ParseJson(std::string_view text, const std::string& name) {
  SyntaxChecker checker;
  if (!Json::sax_parse(text, &checker)) {
    if (checker.too_deep()) {
      return Status(StatusCode::kModel, name + ": JSON nested deeper than " +
                                            std::to_string(SyntaxChecker::kMaxDepth) + " levels");
    }
    return Status(StatusCode::kModel,
                  name + ": invalid JSON at byte " + std::to_string(checker.error_byte()));
  }
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

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

StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes) {
  std::error_code error;
  // Opening a named pipe would wait for a writer.
  if (std::filesystem::exists(path, error) && !std::filesystem::is_regular_file(path, error)) {
    return Status(StatusCode::kModel, path + " is not a regular file");
  }
  std::ifstream in(path, std::ios::binary);
  if (!in) {
    return Status(StatusCode::kModel, "cannot open " + path + ": " + std::strerror(errno));
  }
  std::string text;
  char chunk[1 << 16];
  while (in.read(chunk, sizeof chunk), in.gcount() > 0) {
    text.append(chunk, static_cast<size_t>(in.gcount()));
    if (text.size() > max_bytes) {
      return Status(StatusCode::kModel,
                    path + " is larger than " + std::to_string(max_bytes >> 20) + " MB");
    }
  }
  if (in.bad()) return Status(StatusCode::kModel, "cannot read " + path);
  return text;
}

}  // namespace kuiper
