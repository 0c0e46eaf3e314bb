// Weights in files: Hugging Face directories, single .safetensors files and containers packed by
// kuiper_pack. OpenModel reads models through this class, and kuiper_pack copies its tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/base/tensor.h"
#include "kuiper/model/safetensors.h"
#include "kuiper/model/weight_source.h"

namespace kuiper {

// Holds every tensor of a source, including unused ones; kuiper_pack copies them all.
class FileWeights : public WeightSource {
 public:
  // Opens the files and checks their headers; reads no weights. docs/command_line.md lists the
  // kModel errors.
  static StatusOr<std::unique_ptr<FileWeights>> Open(const std::string& path);

  struct Item {
    const SafetensorsFile* file;
    const SafetensorsEntry* entry;
  };
  const std::map<std::string, Item>& items() const { return items_; }
  // Tensors that the index lists but no file has, each with the file name given in the index.
  const std::map<std::string, std::string>& absent() const { return absent_; }
  // True if two tensors of items() are bit-identical. Reads both up to the first difference and
  // releases the memory pages; the page cache keeps them.
  bool AreEqual(const Item& a, const Item& b);

  // Sets how matrices may be packed, as files().config_json says.
  void set_quantization(QuantizationConfig quantization) {
    quantization_ = std::move(quantization);
  }

  const ModelFiles& files() const override { return files_; }
  StatusOr<Tensor> Get(const Weight& weight) override;
  StatusOr<std::optional<PackedMatrix>> GetPacked(const Weight& weight) override;
  std::vector<std::string> Unused() const override;
  void WillNeed(const void* data, size_t bytes) override;
  void Read(const void* data, size_t bytes) override;
  void DontNeed(const void* data, size_t bytes) override;
  void KeepCached() override { keeps_cached_ = true; }
  uint64_t Digest() const override;
  std::string ChangedFile() const override;
  int64_t file_bytes() const override;

 private:
  FileWeights() = default;
  Status OpenDirectory(const std::string& dir);
  Status OpenSingleFile(const std::string& path);
  Status OpenShards(const std::string& dir);
  Status AddFile(const std::string& path);
  std::optional<StoredTensor> Find(const std::string& name) const;

  ModelFiles files_;
  QuantizationConfig quantization_;
  std::vector<std::unique_ptr<SafetensorsFile>> maps_;
  std::map<std::string, Item> items_;
  std::map<std::string, std::string> absent_;
  std::set<std::string> used_;
  bool keeps_cached_ = false;
};

}  // namespace kuiper
