// Tests the readers on tensors that are written here, code by code, as the formats' authors
// describe them. Covers every pair of code and zero point, sizes around those of words, and pieces
// of any size.
#include "kuiper/model/quantized/packed_matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <vector>

#include "kuiper/base/half.h"
#include "kuiper/model/manifest.h"
#include "kuiper/model/quantized/int8_rows.h"
#include "test/model/model_files.h"
#include "test/model/quantized_values.h"

namespace kuiper::test {
namespace {

using Packing = QuantizationConfig::Packing;
using Kind = WeightFormat::Kind;

// A matrix given by its numbers.
struct Numbers {
  int out, in, bits, group;
  std::vector<int> codes, zeros;  // [out, in], [out, groups]

  int groups() const { return (in + group - 1) / group; }
  int code(int row, int column) const { return codes[row * in + column]; }
  int zero(int row, int group_of_row) const { return zeros[row * groups() + group_of_row]; }
};

// Every code meets every zero once a row has 16 groups of 16 codes or more.
Numbers MakeNumbers(int out, int in, int bits, int group) {
  Numbers n{out, in, bits, group, {}, {}};
  std::mt19937 random(static_cast<unsigned>(out * 1000 + in));
  const unsigned mask = (1u << bits) - 1;
  for (int i = 0; i < out * in; ++i) n.codes.push_back(static_cast<int>(random() & mask));
  for (int i = 0; i < out * n.groups(); ++i) n.zeros.push_back(static_cast<int>(i & mask));
  return n;
}

// The tensors of a matrix, in memory.
class Tensors {
 public:
  void Add(const std::string& suffix, const char* type, std::vector<int64_t> shape,
           std::string bytes) {
    bytes_["m." + suffix] = std::move(bytes);
    tensors_["m." + suffix] = {.file = "test",
                               .name = "m." + suffix,
                               .type = FindSafetensorsType(type),
                               .shape = std::move(shape)};
  }
  void AddWords(const std::string& suffix, int64_t rows, int64_t columns,
                const std::vector<uint32_t>& words) {
    Add(suffix, "I32", {rows, columns}, BytesOf(words));
  }
  TensorFinder Finder() const {
    return [this](const std::string& name) -> std::optional<StoredTensor> {
      const auto it = tensors_.find(name);
      if (it == tensors_.end()) return std::nullopt;
      StoredTensor tensor = it->second;
      tensor.bytes = bytes_.at(name);
      return tensor;
    };
  }

 private:
  std::map<std::string, std::string> bytes_;
  std::map<std::string, StoredTensor> tensors_;
};

// Returns the result of reading a tensor in pieces of some units.
std::vector<char> Unpacked(const PackedTensor& t, int64_t units_of_a_piece) {
  const std::string_view bytes = t.stored.bytes;
  if (t.becomes.rank == 0) return {};
  if (t.unpack == nullptr) return {bytes.begin(), bytes.end()};
  std::vector<char> out(static_cast<size_t>(t.becomes.bytes()), '\xEE');
  const auto size = static_cast<size_t>(units_of_a_piece * t.unit_bytes);
  for (size_t at = 0; at < bytes.size(); at += size) {
    t.unpack(t, {static_cast<int64_t>(at) / t.unit_bytes, bytes.substr(at, size)}, out.data());
  }
  return out;
}

void ExpectNumbers(const QuantizationConfig& config, const Tensors& tensors, const Numbers& n) {
  const Weight weight{.name = "m.weight", .shape = {n.out, n.in}};
  const auto packed = FindPacked(config, weight, tensors.Finder());
  ASSERT_TRUE(packed.ok()) << packed.status().message();
  ASSERT_TRUE(packed->has_value());
  for (const int64_t units : {1, 2, 3, 1000}) {
    std::vector<char> values = Unpacked((*packed)->values, units);
    std::vector<char> zeros = Unpacked((*packed)->zeros, units);
    WeightMatrix matrix;
    matrix.format = (*packed)->format;
    matrix.values = (*packed)->values.becomes;
    matrix.values.data = values.data();
    for (int row = 0; row < n.out; ++row) {
      for (int column = 0; column < n.in; ++column) {
        ASSERT_EQ(CodeAt(matrix, row, column), static_cast<unsigned>(n.code(row, column)))
            << n.out << " x " << n.in << ", row " << row << ", column " << column;
      }
    }
    if (zeros.empty()) continue;
    ASSERT_EQ(zeros.size(), n.zeros.size());
    for (size_t i = 0; i < zeros.size(); ++i) {
      ASSERT_EQ(static_cast<unsigned char>(zeros[i]), n.zeros[i]) << n.out << " x " << n.in;
    }
  }
}

QuantizationConfig ConfigOf(Packing packing, int bits, int group, int zero_offset = 0) {
  QuantizationConfig config;
  config.packing = packing;
  config.kind = bits == 4 ? Kind::kInt4 : Kind::kInt8;
  config.group_columns = group;
  config.is_symmetric = false;
  config.zero_offset = zero_offset;
  return config;
}

void AddScales(const std::string& suffix, int64_t rows, int64_t columns, Tensors* tensors) {
  tensors->Add(suffix, "F16", {rows, columns},
               BytesOf(std::vector<uint16_t>(static_cast<size_t>(rows * columns), 0x3C00)));
}

// AutoAWQ's: word c, nibble i of an input is output 8 c + order[i].
std::vector<uint32_t> AwqWords(int rows, int out, const std::function<int(int, int)>& code) {
  constexpr int kOrder[] = {0, 2, 4, 6, 1, 3, 5, 7};
  std::vector<uint32_t> words;
  for (int row = 0; row < rows; ++row) {
    for (int c = 0; c < out / 8; ++c) {
      uint32_t word = 0;
      for (int i = 0; i < 8; ++i) {
        word |= static_cast<uint32_t>(code(8 * c + kOrder[i], row)) << (4 * i);
      }
      words.push_back(word);
    }
  }
  return words;
}

TEST(PackedMatrix, AwqHasItsOrderOfOutputs) {
  EXPECT_EQ(AwqWords(1, 8, [](int row, int) { return row; })[0], 0x75316420u);
  for (const int out : {8, 16, 24, 136}) {
    for (const auto& [in, group] : std::vector<std::pair<int, int>>{
             {32, 32}, {64, 32}, {96, 32}, {128, 64}, {128, 128}, {640, 32}, {160, 128}}) {
      const Numbers n = MakeNumbers(out, in, 4, group);
      Tensors tensors;
      tensors.AddWords("qweight", in, out / 8,
                       AwqWords(in, out, [&](int row, int column) { return n.code(row, column); }));
      tensors.AddWords("qzeros", n.groups(), out / 8,
                       AwqWords(n.groups(), out, [&](int row, int g) { return n.zero(row, g); }));
      AddScales("scales", n.groups(), out, &tensors);
      ExpectNumbers(ConfigOf(Packing::kAwq, 4, n.group), tensors, n);
    }
  }
}

// Words of `count` consecutive codes each, the first in the low bits.
uint32_t WordOf(int bits, const std::function<int(int)>& code) {
  uint32_t word = 0;
  for (int i = 0; i < 32 / bits; ++i) word |= static_cast<uint32_t>(code(i)) << (i * bits);
  return word;
}

// Version 1 stores zero points minus one, so that 0 is stored as the largest code.
TEST(PackedMatrix, GptqOfBothVersionsAndSizes) {
  for (const int bits : {4, 8}) {
    const int per_word = 32 / bits;
    for (const int offset : {0, 1}) {
      for (const int out : {8, 24, 136}) {
        for (const int in : {32, 96, 128, 640}) {
          const Numbers n = MakeNumbers(out, in, bits, 32);
          std::vector<uint32_t> codes, zeros;
          for (int i = 0; i < in / per_word; ++i) {
            for (int row = 0; row < out; ++row) {
              codes.push_back(WordOf(bits, [&](int j) { return n.code(row, i * per_word + j); }));
            }
          }
          for (int g = 0; g < n.groups(); ++g) {
            for (int i = 0; i < out / per_word; ++i) {
              zeros.push_back(WordOf(bits, [&](int j) {
                return (n.zero(i * per_word + j, g) - offset) & ((1 << bits) - 1);
              }));
            }
          }
          Tensors tensors;
          tensors.AddWords("qweight", in / per_word, out, codes);
          tensors.AddWords("qzeros", n.groups(), out / per_word, zeros);
          AddScales("scales", n.groups(), out, &tensors);
          ExpectNumbers(ConfigOf(Packing::kGptq, bits, n.group, offset), tensors, n);
        }
      }
    }
  }
}

TEST(PackedMatrix, CompressedTensorsOfOddHeights) {
  for (const int bits : {4, 8}) {
    const int per_word = 32 / bits;
    for (const int out : {1, 3, 7, 8, 9, 33}) {
      for (const int in : {32, 64, 160}) {
        const Numbers n = MakeNumbers(out, in, bits, 32);
        std::vector<uint32_t> codes, zeros;
        for (int row = 0; row < out; ++row) {
          for (int i = 0; i < in / per_word; ++i) {
            codes.push_back(WordOf(bits, [&](int j) { return n.code(row, i * per_word + j); }));
          }
        }
        const int words = (out + per_word - 1) / per_word;
        for (int i = 0; i < words; ++i) {
          for (int g = 0; g < n.groups(); ++g) {
            zeros.push_back(WordOf(bits, [&](int j) {
              const int row = i * per_word + j;
              return row < out ? n.zero(row, g) : 1;
            }));
          }
        }
        Tensors tensors;
        tensors.AddWords("weight_packed", out, in / per_word, codes);
        tensors.AddWords("weight_zero_point", words, n.groups(), zeros);
        AddScales("weight_scale", out, n.groups(), &tensors);
        ExpectNumbers(ConfigOf(Packing::kCompressedTensors, bits, n.group), tensors, n);
      }
    }
  }
}

TEST(PackedMatrix, ScalesAreTransposedInTheirType) {
  for (const char* type : {"F16", "BF16", "F32"}) {
    const int out = 40, in = 96, groups = 3;
    Tensors tensors;
    tensors.AddWords("qweight", in, out / 8, std::vector<uint32_t>(in * out / 8));
    tensors.AddWords("qzeros", groups, out / 8, std::vector<uint32_t>(groups * out / 8));
    const bool wide = std::string(type) == "F32";
    std::vector<uint16_t> halves;
    std::vector<uint32_t> words;
    for (int i = 0; i < groups * out; ++i) {
      halves.push_back(static_cast<uint16_t>(i));
      words.push_back(static_cast<uint32_t>(i));
    }
    tensors.Add("scales", type, {groups, out}, wide ? BytesOf(words) : BytesOf(halves));
    const QuantizationConfig config = ConfigOf(Packing::kAwq, 4, 32);
    const Weight weight{.name = "m.weight", .shape = {out, in}};
    const auto packed = FindPacked(config, weight, tensors.Finder());
    ASSERT_TRUE(packed.ok()) << packed.status().message();
    EXPECT_EQ((*packed)->format.scale_type, FindSafetensorsType(type)->dtype);
    const std::vector<char> scales = Unpacked((*packed)->scales, 2);
    for (int row = 0; row < out; ++row) {
      for (int g = 0; g < groups; ++g) {
        const size_t size = wide ? 4 : 2;
        uint32_t bits = 0;
        std::memcpy(&bits, scales.data() + static_cast<size_t>(row * groups + g) * size, size);
        EXPECT_EQ(bits, static_cast<uint32_t>(g * out + row)) << type;
      }
    }
  }
}

TEST(PackedMatrix, RefusesShapesThatKernelsDoNotTake) {
  const struct {
    int out, in, group;
    const char* message;
  } cases[] = {
      {8, 48, 0, "belongs to 48 inputs, which are not a multiple of 32"},
      {8, 192, 96, "has groups of 96 columns (supported: 32, 64, multiples of 128, whole rows)"},
      {12, 32, 32, "belongs to 12 outputs, which are not a multiple of 8"}};
  for (const auto& c : cases) {
    Tensors tensors;
    const int words = (c.out + 7) / 8;
    tensors.AddWords("qweight", c.in, words, std::vector<uint32_t>(c.in * words));
    const QuantizationConfig config = ConfigOf(Packing::kAwq, 4, c.group);
    const auto packed =
        FindPacked(config, {.name = "m.weight", .shape = {c.out, c.in}}, tensors.Finder());
    ASSERT_FALSE(packed.ok());
    EXPECT_EQ(packed.status().message(), "test: tensor \"m.qweight\" " + std::string(c.message));
  }
}

TEST(Int8Rows, RoundsEachGroupToItsLargestValue) {
  std::mt19937 random(7);
  for (const int64_t in : {32, 96, 128, 160, 256, 896}) {
    const int64_t rows = 5, groups = (in + 127) / 128;
    std::vector<float> values;
    for (int64_t i = 0; i < rows * in; ++i) {
      values.push_back(static_cast<float>(static_cast<int>(random() % 2001) - 1000) / 3000.0f);
    }
    std::fill(values.begin(), values.begin() + 32, 0.0f);
    std::vector<char> codes(static_cast<size_t>(rows * in));
    std::vector<float> scales(static_cast<size_t>(rows * groups));
    std::string bytes(1, 'x');  // so that they are at an odd address
    bytes += BytesOf(values);
    ASSERT_TRUE(QuantizeRows(bytes.data() + 1, DType::kF32, rows, in, codes.data(), scales.data()));
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < in; ++column) {
        const float scale = scales[static_cast<size_t>(row * groups + column / 128)];
        const size_t at = static_cast<size_t>(row * in + column);
        const int code = static_cast<unsigned char>(codes[at]);
        EXPECT_GE(code, 1);
        EXPECT_NEAR(static_cast<float>(code - 128) * scale, values[at], scale * 0.5001f + 1e-30f);
      }
    }
  }
}

TEST(Int8Rows, TakesSmallNumbersAndRefusesNoNumbers) {
  std::vector<float> values(128, 1e-45f);
  std::vector<char> codes(128);
  float scale = 0;
  const auto quantize = [&] {
    return QuantizeRows(reinterpret_cast<const char*>(values.data()), DType::kF32, 1, 128,
                        codes.data(), &scale);
  };
  EXPECT_TRUE(quantize());
  EXPECT_TRUE(std::isfinite(scale));
  for (const float bad : {NAN, INFINITY, -INFINITY}) {
    values[127] = bad;
    EXPECT_FALSE(quantize());
  }
}

}  // namespace
}  // namespace kuiper::test
