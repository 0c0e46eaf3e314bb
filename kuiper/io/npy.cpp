#include "kuiper/io/npy.h"

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

namespace kuiper {

static_assert(std::endian::native == std::endian::little, "rows are written as they lie in memory");

NpyWriter::~NpyWriter() {
  if (file_ != nullptr) std::fclose(file_);
}

Status NpyWriter::Failed() const {
  return Status(StatusCode::kInternal, "cannot write " + path_ + ": " + std::strerror(errno));
}

Status NpyWriter::Open(const std::string& path, int64_t rows, int64_t cols) {
  path_ = path;
  rows_left_ = rows;
  cols_ = cols;
  file_ = std::fopen(path.c_str(), "wb");
  if (file_ == nullptr) return Failed();
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                       std::to_string(rows) + ", " + std::to_string(cols) + "), }";
  constexpr size_t kPreamble = 10;  // magic, version, header length
  const size_t total = (kPreamble + header.size() + 1 + 63) / 64 * 64;
  header.append(total - kPreamble - header.size() - 1, ' ');
  header.push_back('\n');
  const char preamble[kPreamble] = {'\x93',
                                    'N',
                                    'U',
                                    'M',
                                    'P',
                                    'Y',
                                    1,
                                    0,
                                    static_cast<char>(header.size() & 0xFF),
                                    static_cast<char>(header.size() >> 8)};
  if (std::fwrite(preamble, 1, kPreamble, file_) != kPreamble ||
      std::fwrite(header.data(), 1, header.size(), file_) != header.size()) {
    return Failed();
  }
  return OkStatus();
}

Status NpyWriter::WriteRow(const float* row) {
  KU_CHECK(rows_left_-- > 0, "more rows than announced");
  const size_t count = static_cast<size_t>(cols_);
  return std::fwrite(row, sizeof(float), count, file_) == count ? OkStatus() : Failed();
}

Status NpyWriter::Close() {
  KU_CHECK(rows_left_ == 0, "fewer rows than announced");
  std::FILE* file = std::exchange(file_, nullptr);
  return std::fclose(file) == 0 ? OkStatus() : Failed();
}

}  // namespace kuiper
