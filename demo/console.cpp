#include "demo/console.h"

#include <glog/logging.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <string>

#include "kuiper/base/append_file.h"
#include "kuiper/command_line/exit_code.h"
#include "kuiper/command_line/start_log.h"
#include "kuiper/terminal/raw_terminal.h"

namespace kuiper::demo {
namespace {

// Detects the type of the time that glog passes to a sink: const LogMessageTime& or, up to 0.4,
// const std::tm*.
template <typename Time>
Time TimeOf(std::string (*)(google::LogSeverity, const char*, int, Time, const char*, size_t));
using LogTime = decltype(TimeOf(&google::LogSink::ToString));

// Copies glog's lines into the log file.
class FileSink : public google::LogSink {
 public:
  explicit FileSink(std::FILE* file) : file_(file) { google::AddLogSink(this); }
  ~FileSink() override { google::RemoveLogSink(this); }

  void send(google::LogSeverity, const char*, const char*, int, LogTime, const char* message,
            size_t length) override {
    std::fprintf(file_, "%.*s\n", static_cast<int>(length), message);
    std::fflush(file_);
  }

 private:
  std::FILE* file_;
};

std::unique_ptr<FileSink>& Sink() {
  static std::unique_ptr<FileSink> sink;
  return sink;
}

// Indexed by LogLevel.
constexpr int kSeverities[] = {google::GLOG_INFO, google::GLOG_INFO, google::GLOG_WARNING,
                               google::GLOG_ERROR};

}  // namespace

Console::~Console() {
  Sink().reset();
  if (log_file_ != nullptr) std::fclose(log_file_);
}

Status Console::Configure(const Options& options, const char* program) {
  level_ = options.log_level;
  input_is_terminal_ = isatty(STDIN_FILENO) != 0;
  output_is_terminal_ = isatty(STDOUT_FILENO) != 0;
  error_is_terminal_ = isatty(STDERR_FILENO) != 0;
  const char* no_color = std::getenv("NO_COLOR");
  const bool allowed = no_color == nullptr || no_color[0] == '\0';
  const auto colors = [&](bool is_terminal) {
    return options.color == ColorMode::kAuto ? allowed && is_terminal
                                             : options.color == ColorMode::kAlways;
  };
  color_ = colors(error_is_terminal_);
  dims_output_ = colors(output_is_terminal_);
  is_terse_ = error_is_terminal_ && output_is_terminal_ && level_ == LogLevel::kInfo &&
              !options.args.given("log-level") && options.log_file.empty();

  const LogLevel logged = is_terse_ ? LogLevel::kWarning : level_;
  StartLog(program, kSeverities[static_cast<int>(logged)], level_ == LogLevel::kDebug);
  if (options.log_file.empty()) return OkStatus();
  log_path_ = options.log_file;
  log_file_ = std::fopen(log_path_.c_str(), "w");
  if (log_file_ == nullptr) return WriteFailed(log_path_);
  Sink() = std::make_unique<FileSink>(log_file_);
  return OkStatus();
}

Status Console::log_status() const {
  if (log_file_ == nullptr || std::ferror(log_file_) == 0) return OkStatus();
  return Status(StatusCode::kInternal, "cannot write all lines to " + log_path_);
}

void Console::Answer(std::string_view text) {
  if (text.empty() || !output_status_.ok()) return;
  EndProgress();
  const bool written =
      std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
  answer_is_open_ = output_is_terminal_ && text.back() != '\n';
  if (written) return;
  if (errno == EPIPE) {  // the parent process ignored SIGPIPE
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  output_status_ = Status(StatusCode::kInternal,
                          std::string("cannot write to standard output: ") + std::strerror(errno));
}

void Console::Text(std::string_view text) {
  Answer(output_is_terminal_ ? wrapper_.Add(text, TerminalColumns(STDOUT_FILENO)) : text);
}

void Console::WriteError(const std::string& text) {
  EndProgress();
  if (answer_is_open_ && error_is_terminal_) {
    std::fputc('\n', stderr);
    wrapper_.StartLine();
  }
  answer_is_open_ = false;
  std::fwrite(text.data(), 1, text.size(), stderr);
  std::fflush(stderr);
}

void Console::Line(LogLevel level, const std::string& text, const std::string& colored) {
  if (level < level_) return;
  const std::string& shown = color_ ? colored : text;
  const bool wraps = error_is_terminal_ && level > LogLevel::kDebug;
  WriteError((wraps ? WrapLines(shown, TerminalColumns(STDERR_FILENO)) : shown) + "\n");
  if (log_file_ != nullptr) {
    std::fprintf(log_file_, "%s\n", text.c_str());
    std::fflush(log_file_);
  }
}

void Console::Detail(const std::string& text) {
  if (!is_terse_) Info(text);
}

void Console::Prefixed(LogLevel level, const char* prefix, const char* color,
                       const std::string& text) {
  const std::string start = std::string(prefix) + ":";
  const std::string colored = std::string("\x1b[1;") + color + "m" + start + "\x1b[0m " + text;
  Line(level, start + " " + text, colored);
}

void Console::Error(const Status& status) {
  Prefixed(LogLevel::kError, "error", "31", status.message(FlagName));
  std::istringstream hints(status.hint(FlagName));
  for (std::string line; std::getline(hints, line);) {
    Prefixed(LogLevel::kError, "hint", "36", line);
  }
}

void Console::Reply(const std::string& text) {
  if (is_dialogue()) {
    Answer(WrapLines(text, TerminalColumns(STDOUT_FILENO)) + "\n");
  } else {
    WriteError(text + "\n");
  }
}

void Console::Prompt(const char* text) {
  if (is_dialogue()) {
    Answer(text);
  } else if (input_is_terminal_ && error_is_terminal_ && level_ <= LogLevel::kInfo) {
    WriteError(text);
  }
  answer_is_open_ = false;  // the user's input ends the line
}

void Console::Progress(const std::function<std::string()>& text) {
  constexpr double kPause = 0.1;
  if (!error_is_terminal_ || level_ > LogLevel::kInfo) return;
  if (SecondsSince(progress_time_) < kPause) return;
  progress_time_ = Clock::now();
  const int width = TerminalColumns(STDERR_FILENO) - 1;  // a wrapped line cannot be overwritten
  std::fprintf(stderr, "\r%.*s\x1b[K", width, text().c_str());
  std::fflush(stderr);
  progress_shown_ = true;
}

void Console::EndProgress() {
  if (!progress_shown_) return;
  progress_shown_ = false;
  std::fprintf(stderr, "\r\x1b[K");
  std::fflush(stderr);
}

}  // namespace kuiper::demo
