// Converts quantised matrices to the tensors of checkpoint formats, as the formats' own packages
// write them. Pure functions. Only this file and the files of the readers contain the suffixes of
// the tensor names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kuiper/model/safetensors.h"
#include "kuiper/quant/codes.h"

namespace kuiper {

// A tensor with its bytes, little-endian.
struct FileTensor {
  std::string name;
  const SafetensorsType* type = nullptr;
  std::vector<int64_t> shape;
  std::string bytes;
};

// compressed-tensors, "pack-quantized": returns the tensors of the linear layer `prefix`.
//
//   weight_packed      I32 [out, in * bits / 32], codes along a row, low bits first
//   weight_scale       [out, groups] in the scheme's type
//   weight_shape       I64 [2], out and in
//   weight_zero_point  I32 [ceil(out * bits / 32), groups], packed along out; asymmetric only
std::vector<FileTensor> PackCompressedTensors(const std::string& prefix, const CodedMatrix& matrix);

// AutoAWQ, "gemm": 4 bits, asymmetric, out a multiple of 8, scales in FP16. Word c of a row holds
// the columns 8c .. 8c + 7 in the order 0 2 4 6 1 3 5 7.
//   qweight  I32 [in, out / 8]
//   qzeros   I32 [groups, out / 8]
//   scales   F16 [groups, out]
std::vector<FileTensor> PackAwq(const std::string& prefix, const CodedMatrix& matrix);

// Converts floats to another type. Sets `fits` to false if a value is too large for it.
std::string FloatBytes(std::span<const float> values, DType type, bool* fits = nullptr);

}  // namespace kuiper
