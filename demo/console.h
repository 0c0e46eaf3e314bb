// The two output streams of a program: answers on stdout, everything else on stderr. Only this file
// writes to either (log lines go through glog, see start_log.h). Independent of flags and models.
#pragma once

#include <cstdio>
#include <functional>
#include <string>
#include <string_view>

#include "demo/options.h"
#include "kuiper/base/clock.h"
#include "kuiper/base/status.h"
#include "kuiper/base/terminal_text.h"
#include "kuiper/terminal/line_wrapper.h"

namespace kuiper::demo {

class Console {
 public:
  Console() = default;
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Sets levels, colour and the log file; starts glog. Returns kInternal if the log file cannot be
  // written.
  Status Configure(const Options& options, const char* program);

  // Writes to stdout and flushes. A closed pipe ends the process by SIGPIPE; any other failure is
  // stored in output_status().
  void Answer(std::string_view text);
  // Writes the text of an answer. On a terminal, lines break between words, and the last word is
  // held back until it is complete or EndText is called.
  void Text(std::string_view text);
  void EndText() { Answer(wrapper_.Flush()); }
  const Status& output_status() const { return output_status_; }
  // Returns kInternal if lines of the log file could not be written.
  Status log_status() const;

  // Print lines on stderr, given without newline. Info: contract lines and statistics.
  void Line(LogLevel level, const std::string& text) { Line(level, text, text); }
  void Info(const std::string& text) { Line(LogLevel::kInfo, text); }
  // Prints details that users at a terminal do not need; shown there only with --verbose.
  void Detail(const std::string& text);
  // Prints the one line of numbers that may interest users, dimmed.
  void Dim(const std::string& text) { Line(LogLevel::kInfo, text, Dimmed(text)); }
  // "note: ...", "hint: ..."
  void Note(const std::string& text) { Prefixed(LogLevel::kInfo, "note", "36", text); }
  void Hint(const std::string& text) { Prefixed(LogLevel::kInfo, "hint", "36", text); }
  // "warning: ...", even with --quiet.
  void Warning(const std::string& text) { Prefixed(LogLevel::kWarning, "warning", "33", text); }
  // Prints "error: MESSAGE", then the status's hint in at most two lines.
  void Error(const Status& status);

  // Prints the output of chat commands on the terminal: stdout if that is one, else stderr.
  void Reply(const std::string& text);
  // Reply without a newline, and only on a terminal: ">>> ".
  void Prompt(const char* text);

  // Shows a line that is overwritten by the next one. Only if stderr is a terminal, and at a
  // limited rate: otherwise `text` is not called.
  void Progress(const std::function<std::string()>& text);
  void EndProgress();

  // True if input and output are terminals, so that a user types and reads.
  bool is_dialogue() const { return input_is_terminal_ && output_is_terminal_; }
  bool input_is_terminal() const { return input_is_terminal_; }
  bool output_is_terminal() const { return output_is_terminal_; }
  // True if both streams go to a terminal and no flag requests more output than needed to follow an
  // answer.
  bool is_terse() const { return is_terse_; }
  // True if standard output may have colours.
  bool dims_output() const { return dims_output_; }

 private:
  void Line(LogLevel level, const std::string& text, const std::string& colored);
  void Prefixed(LogLevel level, const char* prefix, const char* color, const std::string& text);
  void WriteError(const std::string& text);

  LogLevel level_ = LogLevel::kInfo;
  bool input_is_terminal_ = false;
  bool output_is_terminal_ = false;
  bool error_is_terminal_ = false;
  bool color_ = false;
  bool dims_output_ = false;
  bool is_terse_ = false;
  bool progress_shown_ = false;
  bool answer_is_open_ = false;  // on a terminal, the cursor is within a line
  Clock::time_point progress_time_;
  LineWrapper wrapper_;
  std::FILE* log_file_ = nullptr;
  std::string log_path_;
  Status output_status_;
};

}  // namespace kuiper::demo
