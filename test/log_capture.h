// What the library logs while an object lives, for tests; the lines do not go anywhere else.
#pragma once

#include <string>

#include "kuiper/base/log.h"

namespace kuiper::test {

class LogCapture {
 public:
  LogCapture() {
    Text().clear();
    SetLogSink([](LogSeverity, const std::string& message) { Text() += message + "\n"; });
  }
  ~LogCapture() { SetLogSink(nullptr); }
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;

  const std::string& text() const { return Text(); }

 private:
  static std::string& Text() {
    static std::string text;
    return text;
  }
};

}  // namespace kuiper::test
