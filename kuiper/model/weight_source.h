// Where weights come from: a line of the manifest, and a host tensor in return. file_weights.h
// reads them from files, random_weights.cpp makes them up; placing them on a device is LoadModel's
// work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/base/tensor.h"
#include "kuiper/model/quantized/packed_matrix.h"

namespace kuiper {

struct Weight;

// What becomes of weights that the device can use where their file is mapped.
enum class MappedWeights {
  kRead,   // they are used there, and read while the model is loaded
  kLeave,  // they are used there, and read when they are used first
  kCopy,   // they are copied to memory that is read faster
};

// The texts that belong to a model. Empty strings: absent.
struct ModelFiles {
  std::string path;  // as the user gave it
  std::string
      dir;  // folder that holds tokenizer.json and the like, unless carried in the container
  std::string config_json;
  std::string generation_config_json;
  std::string tokenizer_json;         // carried by a packed container only
  std::string tokenizer_config_json;  // carried by a packed container only
  std::string chat_template;          // carried by a packed container only
  std::string chat_template_json;     // the older file; carried by a packed container only
  // How pictures and videos are scaled; carried by a packed container only.
  std::string processor_json, preprocessor_json, video_preprocessor_json;
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual const ModelFiles& files() const = 0;
  // A dense host tensor of the weight's shape and of any float type, valid while the source lives;
  // the data need not be aligned. Without data it stands for random values (FillRandom), which
  // differ from tensor to tensor. kModel when it is absent or does not have this shape.
  virtual StatusOr<Tensor> Get(const Weight& weight) = 0;
  // The quantised matrix of a linear layer, whose tensors live as long; tensors without bytes stand
  // for random values. Nothing: Get has it dense. kModel as FindPacked.
  virtual StatusOr<std::optional<PackedMatrix>> GetPacked(const Weight&) {
    return std::optional<PackedMatrix>();
  }
  // The names of tensors that nobody asked for.
  virtual std::vector<std::string> Unused() const { return {}; }
  // Hints about part of a tensor that Get returned: its bytes are about to be read; they were
  // copied elsewhere and may leave memory, and the page cache unless KeepCached was called.
  virtual void WillNeed(const void*, size_t) {}
  virtual void DontNeed(const void*, size_t) {}
  // Brings part of a tensor to where reading it waits neither for a disk nor for page tables.
  virtual void Read(const void*, size_t) {}
  // The next program that reads the files is to find them in memory, if nobody else needs it.
  virtual void KeepCached() {}
  // Of the names, types, shapes and first and middle bytes of all tensors: that of another
  // checkpoint is another one, almost certainly. 0 when there are no files.
  virtual uint64_t Digest() const { return 0; }
  // The path of a file that was written to or truncated since it was opened; "" when there is none.
  // One that was replaced by another of its name is still there for who has it open.
  virtual std::string ChangedFile() const { return ""; }
  // Size of all files that hold weights; 0 when there are none.
  virtual int64_t file_bytes() const = 0;
};

}  // namespace kuiper
