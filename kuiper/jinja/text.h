// A string of the interpreter: bytes, and for each byte who wrote it. The origins are runs over the
// bytes, so a string from one hand costs no more than its bytes. Immutable; a Heap owns bytes and
// runs. Knows nothing of templates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace kuiper::jinja {

// Who wrote a byte. Values above kData are data too; the caller gives them out to find its own
// strings again in what was rendered.
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
  // They may have no length where the text is empty.
  std::span<const Run> runs() const { return runs_.empty() ? std::span(&single_, 1) : runs_; }
  // Of the byte at `at`.
  Origin OriginAt(size_t at) const;

 private:
  std::string_view bytes_;
  Run single_;
  std::span<const Run> runs_;  // empty: all bytes are as `single_` says
};

// Bytes and runs while they grow. Stops growing, and says so, at the limit it was made with.
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
  std::vector<Run> runs_;  // neighbours differ in origin; none is empty
};

}  // namespace kuiper::jinja
