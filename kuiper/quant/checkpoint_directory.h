// The directory of a quantised checkpoint while it is written: the completed parts, their files,
// and the last steps that make it a checkpoint. Independent of quantisation, except for the text in
// config.json.
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
  // `fingerprint` identifies everything that the content depends on. Makes the directory if it does
  // not exist. Returns kInvalidArgument if it holds something else or another fingerprint, or if
  // another process is writing it. Returns kInternal if it cannot be written.
  static StatusOr<std::unique_ptr<CheckpointDirectory>> Open(const std::string& path,
                                                             const std::string& fingerprint,
                                                             int num_parts,
                                                             int64_t max_shard_bytes);

  // Returns the error reported when the part was written; absent if the part is not done yet.
  std::optional<double> FinishedPart(int part) const;
  // Writes the tensors of a part as one file. Errors: kInternal, kModel.
  Status WritePart(int part, std::vector<PartTensor> tensors, double error);
  // Call when all parts are written: makes shards of them, and writes the configuration and the
  // files that are copied from `source`. The directory is then a complete checkpoint. `*bytes`:
  // size of its weights.
  Status Finish(const std::string& source, const std::string& config_json, int64_t* bytes);

 private:
  CheckpointDirectory(std::string path, int num_parts, int64_t max_shard_bytes,
                      std::unique_ptr<AppendFile> state);
  Status ReadState(const std::string& fingerprint);

  std::string path_;
  int64_t max_shard_bytes_;
  std::vector<std::string> parts_;  // file names
  std::unique_ptr<AppendFile> state_;
  std::map<int, double> finished_;  // errors by part
  // Known once the first shard is written, when part files begin to be removed.
  std::optional<ShardPlan> plan_;
};

// Returns the text of config.json with "quantization_config". `original` must have been parsed
// without error.
std::string QuantizedConfig(const std::string& original, const QuantizationScheme& scheme);

}  // namespace kuiper
