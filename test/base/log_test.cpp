#include "kuiper/base/log.h"

#include <gtest/gtest.h>

namespace kuiper {
namespace {

TEST(LogTest, WithoutASinkNothingIsPrinted) {
  SetLogSink(nullptr);
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  LogInfo("information");
  LogWarning("warning");
  EXPECT_EQ(testing::internal::GetCapturedStderr() + testing::internal::GetCapturedStdout(), "");
}

TEST(LogTest, TheSinkGetsEveryMessageWithItsSeverity) {
  static std::string got;
  SetLogSink([](LogSeverity severity, const std::string& message) {
    got += (severity == LogSeverity::kWarning ? "W:" : "I:") + message + ";";
  });
  LogInfo("a");
  LogWarning("b");
  SetLogSink(nullptr);
  LogInfo("c");
  EXPECT_EQ(got, "I:a;W:b;");
}

}  // namespace
}  // namespace kuiper
