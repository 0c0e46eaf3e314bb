#include "kuiper/report/answer_files.h"

#include <fstream>

#include "kuiper/base/append_file.h"
#include "kuiper/io/npy.h"

namespace kuiper {

Status WriteTokens(const std::string& path, const std::vector<int32_t>& tokens) {
  std::ofstream file(path);
  for (int32_t id : tokens) file << id << '\n';
  return file.flush() ? OkStatus() : WriteFailed(path);
}

Status WriteLogits(const std::string& path, const Completion& completion, int vocab) {
  const int64_t rows = static_cast<int64_t>(completion.logits.size()) / vocab;
  NpyWriter writer;
  KU_RETURN_IF_ERROR(writer.Open(path, rows, vocab));
  for (int64_t row = 0; row < rows; ++row) {
    KU_RETURN_IF_ERROR(writer.WriteRow(completion.logits.data() + row * vocab));
  }
  return writer.Close();
}

}  // namespace kuiper
