#include "kuiper/base/nvidia_device.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "test/model/model_files.h"

namespace kuiper {
namespace {

using test::TempDir;
using test::WriteFile;

// True if a machine that has only this file is reported to have a device.
bool With(const std::string& file, const std::string& content = "") {
  const TempDir root;
  const std::filesystem::path path = root / file;
  std::filesystem::create_directories(path.parent_path());
  WriteFile(path.string(), content);
  return HasNvidiaDevice(root.path());
}

TEST(NvidiaDevice, IsSeenByItsFiles) {
  for (const char* file : {"dev/nvidiactl", "dev/nvhost-gpu", "proc/driver/nvidia/version",
                           "usr/lib/wsl/lib/nvidia-smi"}) {
    EXPECT_TRUE(With(file)) << file;
  }
  using std::string_literals::operator""s;
  EXPECT_TRUE(With("proc/device-tree/model", "NVIDIA Jetson Orin NX\0"s));
}

TEST(NvidiaDevice, IsNotSeenElsewhere) {
  EXPECT_FALSE(HasNvidiaDevice(TempDir().path()));
  EXPECT_FALSE(HasNvidiaDevice("/nonexistent"));
  EXPECT_FALSE(With("dev/dri/card0"));
  EXPECT_FALSE(With("proc/device-tree/model", "Raspberry Pi 5 Model B"));
}

}  // namespace
}  // namespace kuiper
