// A text file written while a program runs. It is opened before any expensive work, so that an
// unwritable path is reported at once. Failures are kept in status().
#pragma once

#include <cstdio>
#include <string>

#include "kuiper/base/status.h"

namespace kuiper {

class OutputFile {
 public:
  explicit OutputFile(std::string path);  // "": no file; all functions below do nothing
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
