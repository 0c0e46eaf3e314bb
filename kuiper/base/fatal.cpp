#include "kuiper/base/fatal.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace kuiper {
namespace {

std::atomic<const LastWords::Print*> last_words = nullptr;

}  // namespace

void Fatal(int exit_code, const std::string& message) {
  // Exchanged, not read: a fault inside `print` must not call it again.
  if (const LastWords::Print* print = last_words.exchange(nullptr)) {
    (*print)(exit_code, message);
  } else {
    std::fflush(stdout);
    std::fprintf(stderr, "error: %s\n", message.c_str());
  }
  std::fflush(stdout);
  std::fflush(stderr);
  std::_Exit(exit_code);
}

LastWords::LastWords(Print print) : print_(std::move(print)) {
  last_words = &print_;
}

LastWords::~LastWords() {
  last_words = nullptr;
}

}  // namespace kuiper
