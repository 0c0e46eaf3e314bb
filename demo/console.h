// The two streams of a program: answers on stdout, everything else on stderr. Only this file writes
// to either (log lines go through glog, see start_log.h). It knows neither flags nor
// models.
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

  // Levels, colour and the log file; starts glog. kInternal when the log file cannot be written.
  Status Configure(const Options& options, const char* program);

  // Writes to stdout and flushes. A closed pipe ends the process by SIGPIPE; any other failure is
  // remembered in output_status().
  void Answer(std::string_view text);
  // The text of an answer: on a terminal its lines break between words, and its last word waits for
  // its end or for EndText.
  void Text(std::string_view text);
  void EndText() { Answer(wrapper_.Flush()); }
  const Status& output_status() const { return output_status_; }
  // kInternal when lines of the log file could not be written.
  Status log_status() const;

  // Lines on stderr, without newline. Contract lines and statistics:
  void Line(LogLevel level, const std::string& text) { Line(level, text, text); }
  void Info(const std::string& text) { Line(LogLevel::kInfo, text); }
  // What people who watch a terminal do not need: there only with --verbose.
  void Detail(const std::string& text);
  // The one line of numbers that they may want.
  void Dim(const std::string& text) { Line(LogLevel::kInfo, text, Dimmed(text)); }
  // "note: ...", "hint: ..."
  void Note(const std::string& text) { Prefixed(LogLevel::kInfo, "note", "36", text); }
  void Hint(const std::string& text) { Prefixed(LogLevel::kInfo, "hint", "36", text); }
  // "warning: ...", even with --quiet.
  void Warning(const std::string& text) { Prefixed(LogLevel::kWarning, "warning", "33", text); }
  // "error: MESSAGE", then the status's hint in at most two lines.
  void Error(const Status& status);

  // What chat commands print: the terminal, which is stdout if that is one, else stderr.
  void Reply(const std::string& text);
  // The same without a newline, and only on a terminal: ">>> ".
  void Prompt(const char* text);

  // One line that is overwritten, only where stderr is a terminal, and not too often: `text` is not
  // called otherwise.
  void Progress(const std::function<std::string()>& text);
  void EndProgress();

  // Somebody types and reads.
  bool is_dialogue() const { return input_is_terminal_ && output_is_terminal_; }
  bool input_is_terminal() const { return input_is_terminal_; }
  bool output_is_terminal() const { return output_is_terminal_; }
  // Both streams go to a terminal, and nothing asks for more than it takes to follow an answer.
  bool is_terse() const { return is_terse_; }
  // Standard output may have colours.
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
  bool answer_is_open_ = false;  // on a terminal, within a line
  Clock::time_point progress_time_;
  LineWrapper wrapper_;
  std::FILE* log_file_ = nullptr;
  std::string log_path_;
  Status output_status_;
};

}  // namespace kuiper::demo
