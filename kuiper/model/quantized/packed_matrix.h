// A quantised matrix as the tensors of a file hold it, and what each becomes in memory. The readers
// find the tensors of their format, check types and shapes and read next to nothing; the loader
// then moves the bytes (WeightPlacer). Reading and checking bytes are pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/base/tensor.h"
#include "kuiper/model/quantized/quantization_config.h"
#include "kuiper/model/safetensors.h"
#include "kuiper/ops/weight_format.h"

namespace kuiper {

struct Weight;

// A tensor of a file, of any type.
struct StoredTensor {
  std::string file = {}, name = {};  // for messages
  const SafetensorsType* type = nullptr;
  std::vector<int64_t> shape = {};
  std::string_view bytes = {};  // as many as type and shape say

  bool Is(const char* type_name) const { return type == FindSafetensorsType(type_name); }
};
// Nothing: there is no such tensor.
using TensorFinder = std::function<std::optional<StoredTensor>(const std::string& name)>;

// How bytes of a file become one tensor of a WeightMatrix.
struct PackedTensor {
  // Units [first, first + piece.size() / unit_bytes) of the file's tensor.
  struct Piece {
    int64_t first;
    std::string_view bytes;
  };

  StoredTensor stored = {};
  // What it becomes: type and shape, without data. Of rank 0: nothing, it is only verified.
  Tensor becomes = {};
  int64_t unit_bytes = 1;  // pieces are whole units
  int code_bits = 8;       // of packed zeros
  int zero_offset = 0;     // QuantizationConfig::zero_offset
  // kModel for what no correct file holds; null: any bytes are right.
  Status (*verify)(const PackedTensor& tensor, Piece piece) = nullptr;
  // Writes what the piece becomes to its places in `out`, all of the tensor; null: the bytes are
  // `becomes` as they stand.
  void (*unpack)(const PackedTensor& tensor, Piece piece, char* out) = nullptr;
};

struct PackedMatrix {
  WeightFormat format;  // without factor_type
  PackedTensor values = {}, scales = {}, zeros = {};

  // Of the WeightMatrix.
  int64_t bytes() const { return Bytes(values) + Bytes(scales) + Bytes(zeros); }

 private:
  static int64_t Bytes(const PackedTensor& t) {
    return t.becomes.rank == 0 ? 0 : t.becomes.bytes();
  }
};

// The matrix of a linear layer in the packing of the configuration; nothing when the file has it
// dense, as tensors tell. kModel when a tensor is missing, or contradicts config.json or another.
StatusOr<std::optional<PackedMatrix>> FindPacked(const QuantizationConfig& config,
                                                 const Weight& weight, const TensorFinder& find);

// Whether a tensor has the scales of a packed matrix, which keep their type, or is the factor of an
// FP8 KV cache.
bool IsScales(std::string_view tensor_name);
bool IsKvScale(std::string_view tensor_name);

// For the authors of readers.
// "model.layers.0.mlp.up_proj" of its ".weight".
std::string ModuleOf(const Weight& weight);
class TensorReader {
 public:
  TensorReader(const QuantizationConfig& config, const Weight& weight, const TensorFinder& find);

  // `module.suffix` of one of the types; kModel when it is missing, or has another type or shape.
  StatusOr<StoredTensor> Require(const char* suffix, std::initializer_list<const char*> types,
                                 const std::vector<int64_t>& shape) const;
  // One of the float types that scales have.
  StatusOr<StoredTensor> RequireScales(const char* suffix, int64_t rows, int64_t columns) const;
  std::optional<StoredTensor> Find(const char* suffix) const;
  Status Missing(const char* suffix) const;

  int64_t out() const { return out_; }
  int64_t in() const { return in_; }
  int64_t groups() const;  // of columns

 private:
  const QuantizationConfig& config_;
  const TensorFinder& find_;
  std::string module_;
  int64_t out_, in_;
};
Status TensorError(const StoredTensor& tensor, const std::string& what,
                   const std::string& hint = "");
// A PackedTensor whose bytes are [rows, columns] of this type as they stand.
PackedTensor InPlace(StoredTensor stored, DType type, int64_t rows, int64_t columns);

// The readers, a file each.
StatusOr<PackedMatrix> ReadAwqMatrix(const QuantizationConfig& config, const TensorReader& reader);
StatusOr<PackedMatrix> ReadGptqMatrix(const QuantizationConfig& config, const TensorReader& reader);
StatusOr<PackedMatrix> ReadCompressedTensorsMatrix(const QuantizationConfig& config,
                                                   const TensorReader& reader);
StatusOr<PackedMatrix> ReadE4M3Matrix(const QuantizationConfig& config, const TensorReader& reader);

}  // namespace kuiper
