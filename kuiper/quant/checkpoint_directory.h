// The directory of a quantised checkpoint while it is written: which parts are whole, their files,
// and what makes a directory of them. Knows nothing of quantisation but the words in config.json.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kuiper/base/append_file.h"
#include "kuiper/base/status.h"
#include "kuiper/quant/layer.h"
#include "kuiper/quant/shards.h"

namespace kuiper {

PartTensor InMemory(FileTensor tensor);

class CheckpointDirectory {
 public:
  // `fingerprint` stands for everything that the content depends on. A directory that is not there
  // is made. kInvalidArgument when it holds something else, another fingerprint, or another process
  // writes it; kInternal when it cannot be written.
  static StatusOr<std::unique_ptr<CheckpointDirectory>> Open(const std::string& path,
                                                             const std::string& fingerprint,
                                                             int num_parts,
                                                             int64_t max_shard_bytes);

  // The error of the report with which a part was written; absent when it is still to be done.
  std::optional<double> FinishedPart(int part) const;
  // Writes the tensors of a part as one file. kInternal, kModel.
  Status WritePart(int part, std::vector<PartTensor> tensors, double error);
  // When all parts are there: makes shards of them, and writes the files that come from `source`
  // and the configuration. From then on it is a checkpoint. `*bytes`: of its weights.
  Status Finish(const std::string& source, const std::string& config_json, int64_t* bytes);

 private:
  CheckpointDirectory(std::string path, int num_parts, int64_t max_shard_bytes,
                      std::unique_ptr<AppendFile> state);
  Status ReadState(const std::string& fingerprint);

  std::string path_;
  int64_t max_shard_bytes_;
  std::vector<std::string> parts_;  // files
  std::unique_ptr<AppendFile> state_;
  std::map<int, double> finished_;  // errors by part
  std::optional<ShardPlan> plan_;   // known from the first shard on, when parts begin to disappear
};

// The text of config.json with "quantization_config". `original` is a configuration that was parsed
// without error.
std::string QuantizedConfig(const std::string& original, const QuantizationScheme& scheme);

}  // namespace kuiper
