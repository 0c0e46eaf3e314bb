#include "demo/signals.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "demo/exit_code.h"

namespace kuiper::demo {
namespace {

// Signal handlers can see nothing but globals.
volatile std::sig_atomic_t g_generating = 0;
volatile std::sig_atomic_t g_interrupts = 0;

void OnInterrupt(int) {
  g_interrupts = g_interrupts + 1;
  if (g_generating != 0 && g_interrupts == 1) return;
  // The signal is blocked during its handler: with the default action restored it is delivered on
  // return.
  std::signal(SIGINT, SIG_DFL);
  std::raise(SIGINT);
}

}  // namespace

void InstallSignalHandlers() {
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART;
  struct sigaction old = {};
  // Started with SIGINT ignored (nohup, a background job of a script): keep ignoring it.
  if (sigaction(SIGINT, nullptr, &old) == 0 && old.sa_handler != SIG_IGN) {
    sigaction(SIGINT, &action, nullptr);
  }
  std::signal(SIGPIPE, SIG_DFL);
}

InterruptScope::InterruptScope() {
  g_interrupts = 0;
  g_generating = 1;
}

InterruptScope::~InterruptScope() {
  g_generating = 0;
  g_interrupts = 0;
}

bool InterruptScope::interrupted() const {
  return g_interrupts != 0;
}

void DieByInterrupt() {
  std::fflush(nullptr);
  std::signal(SIGINT, SIG_DFL);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
  std::raise(SIGINT);
  _exit(kExitInterrupted);
}

}  // namespace kuiper::demo
