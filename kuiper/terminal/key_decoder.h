// Decodes bytes from a terminal into keys: characters, control keys, escape sequences of VT100 and
// its descendants. A bracketed paste of any length is one key. Reads no file.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kuiper {

struct Key {
  enum class Kind {
    kText,   // a character
    kPaste,  // line breaks are \n; other control characters, except tabs, are removed
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
    kUnknown,  // an unsupported sequence
  };
  Kind kind = Kind::kUnknown;
  std::string text = {};  // kText, kPaste
  char letter = 0;        // kControl: 'A' for Ctrl-A
};

class KeyDecoder {
 public:
  void Feed(std::string_view bytes) { bytes_ += bytes; }
  // Returns nothing while a key is incomplete. `no_more`: no byte followed for a moment, so an
  // escape byte is the Escape key.
  std::optional<Key> Next(bool no_more = false);
  // True if Next(true) might return a key where Next() does not.
  bool waits_for_escape() const { return !bytes_.empty() && bytes_[0] == '\x1b' && !in_paste_; }

 private:
  std::optional<Key> Take(size_t bytes, Key key);
  std::optional<Key> Escape(bool no_more);
  std::optional<Key> Paste();

  std::string bytes_;
  bool in_paste_ = false;
  size_t searched_ = 0;  // leading bytes of the paste known not to contain its end
};

}  // namespace kuiper
