#include "kuiper/base/output_file.h"

#include <utility>

#include "kuiper/base/append_file.h"

namespace kuiper {

OutputFile::OutputFile(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  file_ = std::fopen(path_.c_str(), "w");
  if (file_ == nullptr) status_ = WriteFailed(path_);
}

void OutputFile::Write(const std::string& text) {
  if (file_ == nullptr || !status_.ok()) return;
  if (std::fwrite(text.data(), 1, text.size(), file_) != text.size()) status_ = WriteFailed(path_);
}

void OutputFile::Close() {
  if (file_ == nullptr) return;
  const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  if (!closed && status_.ok()) status_ = WriteFailed(path_);
}

}  // namespace kuiper
