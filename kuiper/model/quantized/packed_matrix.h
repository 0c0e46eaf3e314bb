// A quantised matrix as the tensors of a file hold it, and how each tensor is converted. The
// readers find the tensors of their format, check types and shapes, and read almost no data. The
// loader then moves the bytes (WeightPlacer). The functions that read and check bytes are pure.
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
  std::string_view bytes = {};  // number of bytes given by type and shape

  bool Is(const char* type_name) const { return type == FindSafetensorsType(type_name); }
};
// Returns nothing if there is no such tensor.
using TensorFinder = std::function<std::optional<StoredTensor>(const std::string& name)>;

// How bytes of a file are converted to one tensor of a WeightMatrix.
struct PackedTensor {
  // Units [first, first + piece.size() / unit_bytes) of the file's tensor.
  struct Piece {
    int64_t first;
    std::string_view bytes;
  };

  StoredTensor stored = {};
  // The resulting type and shape, without data. Rank 0: the tensor is only verified.
  Tensor becomes = {};
  int64_t unit_bytes = 1;  // each piece is a whole number of units
  int code_bits = 8;       // bits per code of packed zero points
  int zero_offset = 0;     // QuantizationConfig::zero_offset
  // Returns kModel if no correct file can hold these bytes; null if any bytes are valid.
  Status (*verify)(const PackedTensor& tensor, Piece piece) = nullptr;
  // Writes the converted piece to its position in `out`, which is the whole tensor. Null: the bytes
  // are those of `becomes`, unchanged.
  void (*unpack)(const PackedTensor& tensor, Piece piece, char* out) = nullptr;
};

struct PackedMatrix {
  WeightFormat format;  // without operand_type
  PackedTensor values = {}, scales = {}, zeros = {};

  // Bytes of the resulting WeightMatrix.
  int64_t bytes() const { return Bytes(values) + Bytes(scales) + Bytes(zeros); }

 private:
  static int64_t Bytes(const PackedTensor& t) {
    return t.becomes.rank == 0 ? 0 : t.becomes.bytes();
  }
};

// Returns the matrix of a linear layer in the configured packing, or nothing if the tensors show
// that the file has it dense. Returns kModel if a tensor is missing, or contradicts config.json or
// another tensor.
StatusOr<std::optional<PackedMatrix>> FindPacked(const QuantizationConfig& config,
                                                 const Weight& weight, const TensorFinder& find);

// IsScales: the tensor holds the scales of a packed matrix, which keep their type. IsKvScale: it is
// a scale of an FP8 KV cache.
bool IsScales(std::string_view tensor_name);
bool IsKvScale(std::string_view tensor_name);

// For the readers. Returns "model.layers.0.mlp.up_proj" for a weight with ".weight" after it.
std::string ModuleOf(const Weight& weight);
class TensorReader {
 public:
  TensorReader(const QuantizationConfig& config, const Weight& weight, const TensorFinder& find);

  // Returns `module.suffix` of one of the types; kModel if it is missing, or has another type or
  // shape.
  StatusOr<StoredTensor> Require(const char* suffix, std::initializer_list<const char*> types,
                                 const std::vector<int64_t>& shape) const;
  // Returns a tensor in one of the float types that scales may have.
  StatusOr<StoredTensor> RequireScales(const char* suffix, int64_t rows, int64_t columns) const;
  std::optional<StoredTensor> Find(const char* suffix) const;
  Status Missing(const char* suffix) const;

  int64_t out() const { return out_; }
  int64_t in() const { return in_; }
  int64_t groups() const;  // column groups

 private:
  const QuantizationConfig& config_;
  const TensorFinder& find_;
  std::string module_;
  int64_t out_, in_;
};
Status TensorError(const StoredTensor& tensor, const std::string& what,
                   const std::string& hint = "");
// Returns a PackedTensor whose bytes are [rows, columns] of this type, unchanged.
PackedTensor InPlace(StoredTensor stored, DType type, int64_t rows, int64_t columns);

// The readers, each in a file of its own.
StatusOr<PackedMatrix> ReadAwqMatrix(const QuantizationConfig& config, const TensorReader& reader);
StatusOr<PackedMatrix> ReadGptqMatrix(const QuantizationConfig& config, const TensorReader& reader);
StatusOr<PackedMatrix> ReadCompressedTensorsMatrix(const QuantizationConfig& config,
                                                   const TensorReader& reader);
StatusOr<PackedMatrix> ReadE4M3Matrix(const QuantizationConfig& config, const TensorReader& reader);

}  // namespace kuiper
