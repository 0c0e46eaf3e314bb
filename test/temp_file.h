// A file with a text, for as long as a test needs it.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

namespace kuiper::test {

class TempFile {
 public:
  explicit TempFile(const std::string& text) {
    char path[] = "/tmp/kuiper_test_XXXXXX";
    fd_ = mkstemp(path);
    path_ = path;
    std::ofstream(path_, std::ios::binary) << text;
  }
  ~TempFile() {
    close(fd_);
    std::filesystem::remove(path_);
  }
  const std::string& path() const { return path_; }
  int fd() const { return fd_; }

 private:
  std::string path_;
  int fd_ = -1;
};

}  // namespace kuiper::test
