// The source of weights: takes an entry of the manifest and returns a host tensor. file_weights.h
// reads weights from files, random_weights.cpp generates them. LoadModel places them on a device.
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

// How to use weights that the device can read directly from the mapped file.
enum class MappedWeights {
  kRead,   // use in place, read while the model is loaded
  kLeave,  // use in place, read at first use
  kCopy,   // copy to memory that is faster to read
};

// The texts that belong to a model. An empty string means absent.
struct ModelFiles {
  std::string path;  // as the user gave it
  std::string dir;   // folder of tokenizer.json and the like, unless the container holds them
  std::string config_json;
  std::string generation_config_json;
  std::string tokenizer_json;         // only in packed containers
  std::string tokenizer_config_json;  // only in packed containers
  std::string chat_template;          // only in packed containers
  std::string chat_template_json;     // the older file; only in packed containers
  // How images and videos are scaled; only in packed containers.
  std::string processor_json, preprocessor_json, video_preprocessor_json;
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  virtual const ModelFiles& files() const = 0;
  // Returns a dense host tensor of the weight's shape and of any float type, valid while the source
  // lives. The data need not be aligned. A tensor without data stands for random values
  // (FillRandom), which differ from tensor to tensor. Returns kModel if the weight is absent or has
  // another shape.
  virtual StatusOr<Tensor> Get(const Weight& weight) = 0;
  // Returns the quantised matrix of a linear layer; its tensors are valid while the source lives.
  // Tensors without bytes stand for random values. Returns nothing if Get has the matrix dense,
  // kModel as FindPacked does.
  virtual StatusOr<std::optional<PackedMatrix>> GetPacked(const Weight&) {
    return std::optional<PackedMatrix>();
  }
  // Returns the names of tensors that were never requested.
  virtual std::vector<std::string> Unused() const { return {}; }
  // Hints about part of a tensor that Get returned. WillNeed: its bytes are about to be read.
  // DontNeed: its bytes were copied elsewhere and may leave memory. They may also leave the page
  // cache, unless KeepCached was called.
  virtual void WillNeed(const void*, size_t) {}
  virtual void DontNeed(const void*, size_t) {}
  // Reads part of a tensor into memory and page tables, so that later reads wait for neither.
  virtual void Read(const void*, size_t) {}
  // Keeps the files in the page cache, for the next program that reads them, if memory allows.
  virtual void KeepCached() {}
  // Returns a hash of the names, types, shapes and first and middle bytes of all tensors. It almost
  // certainly differs between checkpoints. 0 if there are no files.
  virtual uint64_t Digest() const { return 0; }
  // Returns the path of a file that was written to or truncated since it was opened, or "" if there
  // is none. A replaced file (a new one of the same name) does not count: the old one remains
  // readable through the open handle.
  virtual std::string ChangedFile() const { return ""; }
  // Returns the size of all weight files; 0 if there are none.
  virtual int64_t file_bytes() const = 0;
};

}  // namespace kuiper
