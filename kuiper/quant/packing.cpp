#include "kuiper/quant/packing.h"

#include "kuiper/base/check.h"
#include "kuiper/model/convert.h"

namespace kuiper {
namespace {

// An array of 32-bit words into which codes are written one by one.
class Words {
 public:
  Words(int64_t count, int bits) : bits_(bits), words_(static_cast<size_t>(count)) {}

  int per_word() const { return 32 / bits_; }
  // `place`: index of the code in the word, from the low bits.
  void Put(int64_t word, int place, int code) {
    words_[word] |= static_cast<uint32_t>(code) << (place * bits_);
  }
  std::string Bytes() const {
    std::string bytes;
    bytes.reserve(4 * words_.size());
    for (const uint32_t word : words_) {
      for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(word >> shift);
    }
    return bytes;
  }

 private:
  int bits_;
  std::vector<uint32_t> words_;
};

std::string Int64Bytes(std::initializer_list<int64_t> values) {
  std::string bytes;
  for (const int64_t value : values) {
    for (int shift = 0; shift < 64; shift += 8) {
      bytes += static_cast<char>(static_cast<uint64_t>(value) >> shift);
    }
  }
  return bytes;
}

std::vector<float> Scales(const CodedMatrix& matrix) {
  std::vector<float> scales;
  for (const CodeGrid& grid : matrix.grids) scales.push_back(grid.scale);
  return scales;
}

const SafetensorsType* TypeOf(DType type) {
  return FindSafetensorsType(SafetensorsTypeName(type));
}

}  // namespace

std::string FloatBytes(std::span<const float> values, DType type, bool* fits) {
  std::string bytes(values.size() * DTypeBytes(type), '\0');
  const bool all_fit = ConvertFloats(bytes.data(), type, values.data(), DType::kF32,
                                     static_cast<int64_t>(values.size()));
  if (fits != nullptr) *fits = all_fit;
  return bytes;
}

std::vector<FileTensor> PackCompressedTensors(const std::string& prefix,
                                              const CodedMatrix& matrix) {
  const int64_t out = matrix.out, in = matrix.in, groups = matrix.groups();
  const SafetensorsType* i32 = FindSafetensorsType("I32");
  const int bits = matrix.scheme.bits, per_word = 32 / bits;
  const int64_t row_words = (in + per_word - 1) / per_word;
  Words codes(out * row_words, bits);
  for (int64_t row = 0; row < out; ++row) {
    for (int64_t k = 0; k < in; ++k) {
      codes.Put(row * row_words + k / per_word, static_cast<int>(k % per_word),
                matrix.codes[row * in + k]);
    }
  }
  std::vector<FileTensor> tensors = {
      {prefix + ".weight_packed", i32, {out, row_words}, codes.Bytes()},
      {prefix + ".weight_scale",
       TypeOf(matrix.scheme.scale_type),
       {out, groups},
       FloatBytes(Scales(matrix), matrix.scheme.scale_type)},
      {prefix + ".weight_shape", FindSafetensorsType("I64"), {2}, Int64Bytes({out, in})}};
  if (matrix.scheme.symmetric) return tensors;
  const int64_t zero_rows = (out + per_word - 1) / per_word;
  Words zeros(zero_rows * groups, bits);
  for (int64_t row = 0; row < out; ++row) {
    for (int64_t g = 0; g < groups; ++g) {
      zeros.Put(row / per_word * groups + g, static_cast<int>(row % per_word),
                matrix.grids[row * groups + g].zero);
    }
  }
  tensors.push_back({prefix + ".weight_zero_point", i32, {zero_rows, groups}, zeros.Bytes()});
  return tensors;
}

std::vector<FileTensor> PackAwq(const std::string& prefix, const CodedMatrix& matrix) {
  constexpr int kPerWord = 8;
  // Position of column 8c + k in word c.
  constexpr int kPositionOf[kPerWord] = {0, 4, 1, 5, 2, 6, 3, 7};
  const int64_t out = matrix.out, in = matrix.in, groups = matrix.groups();
  KU_CHECK(matrix.scheme.bits == 4 && !matrix.scheme.symmetric && out % kPerWord == 0 &&
           matrix.scheme.scale_type == DType::kF16);
  const int64_t row_words = out / kPerWord;
  Words codes(in * row_words, 4), zeros(groups * row_words, 4);
  std::vector<float> scales(static_cast<size_t>(groups * out));
  for (int64_t column = 0; column < out; ++column) {
    const int64_t word = column / kPerWord;
    const int place = kPositionOf[column % kPerWord];
    for (int64_t k = 0; k < in; ++k) {
      codes.Put(k * row_words + word, place, matrix.codes[column * in + k]);
    }
    for (int64_t g = 0; g < groups; ++g) {
      const CodeGrid& grid = matrix.grids[column * groups + g];
      zeros.Put(g * row_words + word, place, grid.zero);
      scales[g * out + column] = grid.scale;
    }
  }
  const SafetensorsType* i32 = FindSafetensorsType("I32");
  return {
      {prefix + ".qweight", i32, {in, row_words}, codes.Bytes()},
      {prefix + ".qzeros", i32, {groups, row_words}, zeros.Bytes()},
      {prefix + ".scales", TypeOf(DType::kF16), {groups, out}, FloatBytes(scales, DType::kF16)}};
}

}  // namespace kuiper
