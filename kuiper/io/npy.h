// Writes NumPy .npy files of float32 matrices row by row (format 1.0; NumPy Enhancement Proposal
// 1). Used for dumps of logits.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>

#include "kuiper/base/status.h"

namespace kuiper {

class NpyWriter {
 public:
  NpyWriter() = default;
  NpyWriter(const NpyWriter&) = delete;
  NpyWriter& operator=(const NpyWriter&) = delete;
  ~NpyWriter();

  // Creates the file for a matrix [rows, cols]. Returns kInternal if it cannot be written.
  Status Open(const std::string& path, int64_t rows, int64_t cols);
  Status WriteRow(const float* row);
  // CHECKs that all rows were written; returns errors of the operating system.
  Status Close();

 private:
  Status Failed() const;

  std::string path_;
  std::FILE* file_ = nullptr;
  int64_t rows_left_ = 0;
  int64_t cols_ = 0;
};

}  // namespace kuiper
