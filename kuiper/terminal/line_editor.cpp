#include "kuiper/terminal/line_editor.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

namespace kuiper {
namespace {

using Kind = Key::Kind;

std::string Csi(size_t count, char command) {
  return count == 0 ? "" : std::string("\x1b[").append(std::to_string(count)) + command;
}

// Keeps only the rows around the cursor if there are more than fit the screen.
void CutTo(size_t height, ScreenText* screen) {
  if (screen->rows.size() <= height) return;
  const size_t first = std::min(screen->cursor_row - std::min(screen->cursor_row, height / 2),
                                screen->rows.size() - height);
  screen->rows.erase(screen->rows.begin() + first + height, screen->rows.end());
  screen->rows.erase(screen->rows.begin(), screen->rows.begin() + first);
  screen->cursor_row -= first;
  screen->ends_with_cursor &= screen->cursor_row + 1 == height;
}

// Returns the text that turns `from` into `to` when written at the cursor; nothing if that is not
// possible.
std::optional<std::string> Continuation(const ScreenText& from, const ScreenText& to) {
  if (from.rows.size() != to.rows.size() || from.rows.empty()) return std::nullopt;
  if (!from.ends_with_cursor || !to.ends_with_cursor) return std::nullopt;
  if (!std::equal(from.rows.begin(), from.rows.end() - 1, to.rows.begin())) return std::nullopt;
  if (!to.rows.back().starts_with(from.rows.back())) return std::nullopt;
  return to.rows.back().substr(from.rows.back().size());
}

}  // namespace

LineEditor::LineEditor(Write write, InputHistory history)
    : write_(std::move(write)), history_(std::move(history)) {}

std::optional<std::string> LineEditor::Read(const std::string& prompt, bool continues,
                                            bool is_message) {
  terminal_.TakeSignalKeys(true);
  prompt_ = prompt;
  draft_.clear();
  place_ = history_.lines().size();
  searching_ = false;
  continues_ = continues;
  if (!std::exchange(dropped_, false)) num_interrupts_ = 0;
  Clear();
  Outcome outcome = Outcome::kContinue;
  while (outcome == Outcome::kContinue) {
    const std::optional<Key> key = NextKey();
    outcome = key.has_value() ? HandleKey(*key) : Outcome::kEnd;
  }
  if (!dropped_) {
    Show();
    MoveBelow();
  }
  terminal_.TakeSignalKeys(false);
  if (outcome == Outcome::kEnd) return std::nullopt;
  if (is_message && !buffer_.text().empty()) {
    const Status kept = history_.Add(buffer_.text());
    if (history_status_.ok()) history_status_ = kept;
  }
  return buffer_.text();
}

std::optional<Key> LineEditor::NextKey() {
  // An escape sequence arrives at once, or nearly so.
  constexpr int kEscapeMs = 50, kForever = -1;
  bool no_more = false;
  while (true) {
    if (std::optional<Key> key = keys_.Next(no_more)) return key;
    Show();
    const bool escape = keys_.waits_for_escape();
    const std::optional<std::string> bytes = terminal_.Read(escape ? kEscapeMs : kForever);
    if (!bytes.has_value()) return std::nullopt;
    no_more = escape && bytes->empty();
    keys_.Feed(*bytes);
  }
}

LineEditor::Outcome LineEditor::HandleKey(const Key& key) {
  const bool interrupts = key.kind == Kind::kControl && key.letter == 'C';
  if (!interrupts) num_interrupts_ = 0;
  if (searching_ && Search(key)) return Outcome::kContinue;
  switch (key.kind) {
    case Kind::kText:
    case Kind::kPaste:
      buffer_.Insert(key.text);
      break;
    case Kind::kControl:
      return HandleControlKey(key.letter);
    case Kind::kEnter:
      buffer_.Set(buffer_.text());
      return Outcome::kLine;
    case Kind::kNewLine:
      buffer_.Insert("\n");
      break;
    case Kind::kBackspace:
      buffer_.EraseBefore();
      break;
    case Kind::kDelete:
      buffer_.EraseAt();
      break;
    case Kind::kLeft:
      buffer_.Left();
      break;
    case Kind::kRight:
      buffer_.Right();
      break;
    case Kind::kUp:
      if (!buffer_.Up()) Recall(true);
      break;
    case Kind::kDown:
      if (!buffer_.Down()) Recall(false);
      break;
    case Kind::kHome:
      buffer_.Home();
      break;
    case Kind::kEnd:
      buffer_.End();
      break;
    case Kind::kWordLeft:
      buffer_.WordLeft();
      break;
    case Kind::kWordRight:
      buffer_.WordRight();
      break;
    case Kind::kEscape:
    case Kind::kUnknown:
      break;
  }
  return Outcome::kContinue;
}

LineEditor::Outcome LineEditor::HandleControlKey(char letter) {
  switch (letter) {
    case 'A':
      buffer_.Home();
      break;
    case 'B':
      buffer_.Left();
      break;
    case 'C':
      return Interrupt();
    case 'D':
      if (buffer_.text().empty()) return Outcome::kEnd;
      buffer_.EraseAt();
      break;
    case 'E':
      buffer_.End();
      break;
    case 'F':
      buffer_.Right();
      break;
    case 'K':
      buffer_.EraseToEnd();
      break;
    case 'L':
      write_("\x1b[H\x1b[2J");
      shown_ = {};
      break;
    case 'N':
      Recall(false);
      break;
    case 'P':
      Recall(true);
      break;
    case 'R':
      if (place_ == history_.lines().size()) draft_ = buffer_.text();
      searching_ = true;
      pattern_.clear();
      break;
    case 'U':
      buffer_.EraseToHome();
      break;
    case 'W':
      buffer_.EraseWord();
      break;
    case 'Z':
      MoveBelow();
      terminal_.Suspend();
      break;
    default:
      break;
  }
  return Outcome::kContinue;
}

LineEditor::Outcome LineEditor::Interrupt() {
  if (++num_interrupts_ > 1) return Outcome::kEnd;
  buffer_.Set(buffer_.text());
  Show();
  write_("^C");
  MoveBelow();
  write_("(Ctrl-C once more ends the chat)\n");
  Clear();
  place_ = history_.lines().size();
  draft_.clear();
  dropped_ = continues_;
  return dropped_ ? Outcome::kEnd : Outcome::kContinue;
}

bool LineEditor::Search(const Key& key) {
  const bool older = key.kind == Kind::kControl && key.letter == 'R';
  const bool cancels = key.kind == Kind::kControl && (key.letter == 'C' || key.letter == 'G');
  if (older) {
    FindOlder(place_);
  } else if (key.kind == Kind::kText || key.kind == Kind::kPaste) {
    pattern_ += key.text;
    FindOlder(std::min(place_ + 1, history_.lines().size()));
  } else if (key.kind == Kind::kBackspace) {
    LineBuffer pattern;
    pattern.Set(pattern_);
    pattern.EraseBefore();
    pattern_ = pattern.text();
    FindOlder(history_.lines().size());
  } else {
    searching_ = false;
    if (cancels) {
      place_ = history_.lines().size();
      buffer_.Set(draft_);
    }
    return cancels || key.kind == Kind::kEscape;
  }
  return true;
}

// Shows the newest line before index `before` that contains the pattern. If there is none, nothing
// changes.
void LineEditor::FindOlder(size_t before) {
  if (pattern_.empty()) return;
  while (before-- > 0) {
    if (history_.lines()[before].find(pattern_) == std::string::npos) continue;
    place_ = before;
    buffer_.Set(history_.lines()[before]);
    return;
  }
}

void LineEditor::Recall(bool older) {
  const size_t end = history_.lines().size();
  if (older ? place_ == 0 : place_ == end) return;
  if (place_ == end) draft_ = buffer_.text();
  place_ += older ? -1 : 1;
  buffer_.Set(place_ == end ? draft_ : history_.lines()[place_]);
}

void LineEditor::Clear() {
  buffer_.Set("");
  shown_ = {};
}

void LineEditor::Show() {
  const std::string prompt = searching_ ? "(search \"" + pattern_ + "\") " : prompt_;
  ScreenText screen = LayOut(prompt, buffer_, TerminalColumns(STDOUT_FILENO));
  CutTo(static_cast<size_t>(TerminalRows(STDOUT_FILENO)), &screen);
  if (const std::optional<std::string> more = Continuation(shown_, screen)) {
    if (!more->empty()) write_(*more);
    shown_ = std::move(screen);
    return;
  }
  std::string text;
  if (!shown_.rows.empty()) {
    text.append("\r").append(Csi(shown_.cursor_row, 'A')).append("\x1b[J");
  }
  for (size_t i = 0; i < screen.rows.size(); ++i) text += (i == 0 ? "" : "\n") + screen.rows[i];
  if (!screen.ends_with_cursor) {
    text.append("\r").append(Csi(screen.rows.size() - 1 - screen.cursor_row, 'A'));
    text.append(Csi(static_cast<size_t>(screen.cursor_column), 'C'));
  }
  write_(text);
  shown_ = std::move(screen);
}

// Moves to the start of the row below all shown rows.
void LineEditor::MoveBelow() {
  if (shown_.rows.empty()) return;
  write_(Csi(shown_.rows.size() - 1 - shown_.cursor_row, 'B') + "\n");
  shown_ = {};
}

}  // namespace kuiper
