// What a terminal sends -> keys: characters, control keys, escape sequences of VT100 and its
// descendants, and bracketed pastes, which are one key of any length. Reads no file.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kuiper {

struct Key {
  enum class Kind {
    kText,   // a character
    kPaste,  // with line breaks as \n, and without other control characters but tabs
    kControl,
    kEnter,
    kNewLine,  // Alt-Enter
    kBackspace,
    kDelete,
    kLeft,
    kRight,
    kUp,
    kDown,
    kHome,
    kEnd,
    kWordLeft,
    kWordRight,
    kEscape,
    kUnknown,  // a sequence that means nothing here
  };
  Kind kind = Kind::kUnknown;
  std::string text = {};  // kText, kPaste
  char letter = 0;        // kControl: 'A' for Ctrl-A
};

class KeyDecoder {
 public:
  void Feed(std::string_view bytes) { bytes_ += bytes; }
  // Nothing while a key is incomplete. `no_more`: nothing followed for a moment, so that an escape
  // byte is the key of that name.
  std::optional<Key> Next(bool no_more = false);
  // Whether Next(true) may have what Next() has not.
  bool waits_for_escape() const { return !bytes_.empty() && bytes_[0] == '\x1b' && !in_paste_; }

 private:
  std::optional<Key> Take(size_t bytes, Key key);
  std::optional<Key> Escape(bool no_more);
  std::optional<Key> Paste();

  std::string bytes_;
  bool in_paste_ = false;
  size_t searched_ = 0;  // bytes of the paste in which its end is not
};

}  // namespace kuiper
