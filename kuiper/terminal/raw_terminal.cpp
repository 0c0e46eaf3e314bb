#include "kuiper/terminal/raw_terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string_view>

#include "kuiper/command_line/signals.h"

namespace kuiper {
namespace {

constexpr std::string_view kPasteOn = "\x1b[?2004h", kPasteOff = "\x1b[?2004l";

// Signal handlers can only access globals.
struct termios g_before;
volatile std::sig_atomic_t g_raw = 0;

void Send(std::string_view bytes) {
  (void)!write(STDOUT_FILENO, bytes.data(), bytes.size());
}

struct winsize WindowSize(int fd) {
  struct winsize size = {};
  (void)ioctl(fd, TIOCGWINSZ, &size);
  return size;
}

}  // namespace

void RestoreTerminal() {
  if (g_raw == 0) return;
  g_raw = 0;
  tcsetattr(STDIN_FILENO, TCSANOW, &g_before);
  Send(kPasteOff);
}

bool RawTerminal::IsPossible() {
  const char* type = std::getenv("TERM");
  struct termios now = {};
  return (type == nullptr || std::string_view(type) != "dumb") &&
         tcgetattr(STDIN_FILENO, &now) == 0;
}

RawTerminal::RawTerminal() {
  tcgetattr(STDIN_FILENO, &g_before);
  SetDeathHook(RestoreTerminal);
  // The handler only ends the wait for a key.
  struct sigaction action = {};
  action.sa_handler = [](int) {};
  sigaction(SIGWINCH, &action, nullptr);
  TakeSignalKeys(false);
}

RawTerminal::~RawTerminal() {
  RestoreTerminal();
  SetDeathHook(nullptr);
}

void RawTerminal::TakeSignalKeys(bool as_keys) {
  struct termios raw = g_before;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | IEXTEN);
  if (as_keys) raw.c_lflag &= ~static_cast<tcflag_t>(ISIG);
  raw.c_iflag &= ~static_cast<tcflag_t>(ICRNL | INLCR | IGNCR | IXON | ISTRIP);
  raw.c_cc[VMIN] = 1;
  raw.c_cc[VTIME] = 0;
  const bool begins = g_raw == 0;
  g_raw = 1;
  tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  if (begins) Send(kPasteOn);
}

void RawTerminal::Suspend() {
  RestoreTerminal();
  std::raise(SIGTSTP);
  TakeSignalKeys(true);
}

std::optional<std::string> RawTerminal::Read(int timeout_ms) {
  sigset_t blocked, before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigaddset(&blocked, SIGHUP);
  // While blocked, a signal cannot arrive between TerminationAsked and the wait.
  sigprocmask(SIG_BLOCK, &blocked, &before);
  struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  const struct timespec limit = {timeout_ms / 1000, timeout_ms % 1000 * 1000000L};
  const int ready =
      TerminationAsked() ? 0 : ppoll(&input, 1, timeout_ms < 0 ? nullptr : &limit, &before);
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (TerminationAsked()) return std::nullopt;
  if (ready <= 0) return "";
  std::string bytes(65536, '\0');
  ssize_t n = 0;
  do {
    n = read(STDIN_FILENO, bytes.data(), bytes.size());
  } while (n < 0 && errno == EINTR);
  if (n <= 0) return std::nullopt;
  bytes.resize(static_cast<size_t>(n));
  return bytes;
}

int TerminalColumns(int fd) {
  constexpr int kUsual = 80, kLeast = 8;
  const int columns = WindowSize(fd).ws_col;
  return columns == 0 ? kUsual : std::max(columns, kLeast);
}

int TerminalRows(int fd) {
  constexpr int kUsual = 24, kLeast = 2;
  const int rows = WindowSize(fd).ws_row;
  return rows == 0 ? kUsual : std::max(rows, kLeast);
}

}  // namespace kuiper
