// A text file that is written as a program goes on. It is opened before anything expensive begins,
// so that a path that cannot be written is found at once; failures are kept until somebody asks.
#pragma once

#include <cstdio>
#include <string>

#include "kuiper/base/status.h"

namespace kuiper {

class OutputFile {
 public:
  explicit OutputFile(std::string path);  // "": no file, and everything below does nothing
  ~OutputFile() { Close(); }
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  bool is_open() const { return file_ != nullptr; }
  void Write(const std::string& text);
  void Close();
  // The first failure, kInternal "cannot write PATH: ..."; complete after Close.
  const Status& status() const { return status_; }

 private:
  std::string path_;
  std::FILE* file_ = nullptr;
  Status status_;
};

}  // namespace kuiper
