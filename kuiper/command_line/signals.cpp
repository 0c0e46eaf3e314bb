#include "kuiper/command_line/signals.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <string>

#include "kuiper/base/fatal.h"
#include "kuiper/command_line/exit_code.h"

namespace kuiper {
namespace {

// Signal handlers can only access globals.
volatile std::sig_atomic_t g_scopes = 0;
volatile std::sig_atomic_t g_signals = 0;  // since the newest scope began
volatile std::sig_atomic_t g_newest = SIGINT;
volatile std::sig_atomic_t g_terminated = 0;
void (*volatile g_death_hook)() = nullptr;

// The signal is blocked during its handler: with the default action restored it is delivered on
// return.
void Die(int number) {
  if (g_death_hook != nullptr) g_death_hook();
  std::signal(number, SIG_DFL);
  std::raise(number);
}

void OnSignal(int number) {
  // A lost terminal sends SIGHUP twice: from its shell and from the kernel.
  if (number == SIGHUP && g_newest == SIGHUP && g_signals != 0) return;
  g_signals = g_signals + 1;
  g_newest = number;
  if (number != SIGINT) g_terminated = 1;
  if (g_scopes != 0 && g_signals == 1) return;
  Die(number);
}

// Installs a handler, unless the program was started with the signal ignored (nohup, a background
// job of a script): then it stays ignored.
void Handle(int number, void (*handler)(int)) {
  struct sigaction action = {}, old = {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  if (sigaction(number, nullptr, &old) == 0 && old.sa_handler != SIG_IGN) {
    sigaction(number, &action, nullptr);
  }
}

// Returns the path of the file that is mapped at `address`; "" if there is none.
std::string FileAt(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {  // begin-end rights offset device inode path
    unsigned long begin = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &begin, &end) != 2) continue;
    const size_t path = line.find('/');
    if (begin <= wanted && wanted < end && path != std::string::npos) return line.substr(path);
  }
  return "";
}

// Runs on the thread that read the page, in the middle of a loop over weights. That thread holds no
// lock, so this may do what signal handlers otherwise must not.
void OnLostPage(int number, siginfo_t* info, void*) {
  static std::atomic_flag is_ending;
  while (is_ending.test_and_set()) pause();  // another thread is ending the process
  const std::string file = info->si_code > 0 ? FileAt(info->si_addr) : "";
  if (file.empty()) return Die(number);
  if (g_death_hook != nullptr) g_death_hook();
  Fatal(kExitLostFile, file +
                           " was truncated while it was in use, or can no longer be read; start "
                           "again when the file is whole");
}

}  // namespace

void EndWithLostFiles() {
  struct sigaction action = {};
  action.sa_sigaction = OnLostPage;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);
}

void InstallSignalHandlers() {
  EndWithLostFiles();
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) Handle(number, OnSignal);
  std::signal(SIGPIPE, SIG_DFL);
}

void SetDeathHook(void (*hook)()) {
  g_death_hook = hook;
  Handle(SIGQUIT, hook != nullptr ? Die : SIG_DFL);
}

InterruptScope::InterruptScope() {
  g_signals = 0;
  g_scopes = g_scopes + 1;
}

InterruptScope::~InterruptScope() {
  g_scopes = g_scopes - 1;
  g_signals = 0;
}

bool InterruptScope::interrupted() {
  return g_signals != 0 || g_terminated != 0;
}

bool TerminationAsked() {
  return g_terminated != 0;
}

void DieBySignal() {
  std::fflush(nullptr);
  const int number = g_newest;
  std::signal(number, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, number);
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  std::raise(number);
  _exit(kExitInterrupted);
}

}  // namespace kuiper
