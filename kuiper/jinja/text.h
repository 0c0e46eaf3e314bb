// A string of the interpreter: bytes, and the origin of each byte. Origins are stored as runs, so a
// string of a single origin costs no more than its bytes. Immutable; a Heap owns bytes and runs.
// Independent of templates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kuiper::jinja {

// The origin of a byte. Values above kData are data too; callers use them to find their own strings
// in the rendered text.
using Origin = uint32_t;
inline constexpr Origin kTemplate = 0;
inline constexpr Origin kData = 1;

struct Run {
  size_t length = 0;
  Origin origin = kTemplate;
};

class Text {
 public:
  Text() = default;
  Text(std::string_view bytes, Origin origin) : bytes_(bytes), single_{bytes.size(), origin} {}
  // `runs` cover `bytes` and are not empty.
  Text(std::string_view bytes, std::span<const Run> runs) : bytes_(bytes), runs_(runs) {}

  std::string_view bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  // Runs may have length 0 if the text is empty.
  std::span<const Run> runs() const { return runs_.empty() ? std::span(&single_, 1) : runs_; }
  Origin OriginAt(size_t at) const;

 private:
  std::string_view bytes_;
  Run single_;
  std::span<const Run> runs_;  // empty: `single_` covers all bytes
};

// Bytes and runs that grow. At the limit they stop growing, and overflowed() becomes true.
class TextBuilder {
 public:
  explicit TextBuilder(size_t max_bytes) : max_bytes_(max_bytes) {}

  void Append(std::string_view bytes, Origin origin);
  void Append(const Text& text) { AppendPart(text, 0, text.size()); }
  void AppendPart(const Text& text, size_t begin, size_t size);

  bool overflowed() const { return overflowed_; }
  const std::string& bytes() const { return bytes_; }
  const std::vector<Run>& runs() const { return runs_; }
  std::string TakeBytes() { return std::move(bytes_); }
  std::vector<Run> TakeRuns() { return std::move(runs_); }

 private:
  size_t max_bytes_;
  bool overflowed_ = false;
  std::string bytes_;
  std::vector<Run> runs_;  // adjacent runs differ in origin; no run is empty
};

}  // namespace kuiper::jinja
