#include "kuiper/quant/packing.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kuiper/base/json.h"
#include "kuiper/base/text.h"
#include "kuiper/model/quantized/quantization_config.h"
#include "kuiper/quant/checkpoint_directory.h"
#include "kuiper/quant/layer.h"
#include "test/test_data.h"

namespace kuiper {
namespace {

std::vector<int32_t> WordsOf(const FileTensor& tensor) {
  EXPECT_STREQ(tensor.type->name, "I32");
  EXPECT_EQ(static_cast<int64_t>(tensor.bytes.size()), 4 * tensor.shape[0] * tensor.shape[1]);
  std::vector<int32_t> words(tensor.bytes.size() / 4);
  std::memcpy(words.data(), tensor.bytes.data(), tensor.bytes.size());
  return words;
}

std::vector<int32_t> Flat(const JsonNode& rows) {
  std::vector<int32_t> all;
  for (const JsonNode& row : rows.items) {
    for (const JsonNode& item : row.items) all.push_back(std::stoi(item.text));
  }
  return all;
}

// A matrix with these codes and zeros [out, groups].
CodedMatrix MatrixOf(const CodeScheme& scheme, int64_t out, const std::vector<int32_t>& codes,
                     const std::vector<int32_t>& zeros) {
  CodedMatrix matrix{scheme, out, static_cast<int64_t>(codes.size()) / out, {}, {}};
  matrix.codes.assign(codes.begin(), codes.end());
  for (size_t i = 0; i < zeros.size(); ++i) {
    matrix.grids.push_back({0.25f * static_cast<float>(i + 1), zeros[i]});
  }
  return matrix;
}

// test/data/packed_weights.json has the result of the format's own package for the same codes.
TEST(Packing, CompressedTensorsAsItsPackage) {
  const auto text =
      ReadTextFile(test::Source("test/data/packed_weights.json"), 1 << 20, StatusCode::kInput);
  ASSERT_TRUE(text.ok());
  const auto json = ParseJson(*text, StatusCode::kInput, "goldens");
  ASSERT_TRUE(json.ok());
  const JsonNode& cases = *json->Find("cases");
  ASSERT_EQ(cases.items.size(), 4u);
  for (const JsonNode& one : cases.items) {
    const int bits = std::stoi(one.Find("bits")->text);
    const CodeScheme scheme{bits, 32, false, DType::kF32};
    const int64_t out = static_cast<int64_t>(one.Find("codes")->items.size());
    const CodedMatrix matrix =
        MatrixOf(scheme, out, Flat(*one.Find("codes")), Flat(*one.Find("zeros")));
    const std::vector<FileTensor> tensors = PackCompressedTensors("a.b", matrix);
    ASSERT_EQ(tensors.size(), 4u);
    EXPECT_EQ(tensors[0].name, "a.b.weight_packed");
    EXPECT_EQ(WordsOf(tensors[0]), Flat(*one.Find("packed")));
    EXPECT_EQ(tensors[1].name, "a.b.weight_scale");
    EXPECT_EQ(tensors[1].shape, (std::vector<int64_t>{out, matrix.groups()}));
    EXPECT_EQ(tensors[2].name, "a.b.weight_shape");
    int64_t shape[2];
    ASSERT_EQ(tensors[2].bytes.size(), sizeof shape);
    std::memcpy(shape, tensors[2].bytes.data(), sizeof shape);
    EXPECT_EQ(shape[0], out);
    EXPECT_EQ(shape[1], matrix.in);
    EXPECT_EQ(tensors[3].name, "a.b.weight_zero_point");
    EXPECT_EQ(WordsOf(tensors[3]), Flat(*one.Find("packed_zeros")));
    CodedMatrix symmetric = matrix;
    symmetric.scheme.symmetric = true;
    EXPECT_EQ(PackCompressedTensors("a.b", symmetric).size(), 3u);
  }
}

// The example of AutoAWQ's layout: columns 0 .. 7 with the codes 0 .. 7 are the word 0x75316420.
TEST(Packing, AwqPutsColumnsInItsOrder) {
  const int in = 32, out = 16;
  std::vector<int32_t> codes, zeros;
  for (int column = 0; column < out; ++column) {
    for (int k = 0; k < in; ++k) codes.push_back((column + k) % 16);
    zeros.push_back(15 - column);
  }
  const CodedMatrix matrix = MatrixOf({4, 32, false, DType::kF16}, out, codes, zeros);
  const std::vector<FileTensor> tensors = PackAwq("x", matrix);
  ASSERT_EQ(tensors.size(), 3u);
  EXPECT_EQ(tensors[0].name, "x.qweight");
  EXPECT_EQ(tensors[0].shape, (std::vector<int64_t>{in, out / 8}));
  const std::vector<int32_t> words = WordsOf(tensors[0]), zero_words = WordsOf(tensors[1]);
  EXPECT_EQ(words[0], 0x75316420);
  constexpr int kColumnOf[] = {0, 2, 4, 6, 1, 3, 5, 7};  // column of each nibble
  for (int k = 0; k < in; ++k) {
    for (int column = 0; column < out; column += 8) {
      for (int nibble = 0; nibble < 8; ++nibble) {
        const auto word = static_cast<uint32_t>(words[k * 2 + column / 8]);
        EXPECT_EQ((word >> (4 * nibble)) & 15, (column + kColumnOf[nibble] + k) % 16);
        const auto zero = static_cast<uint32_t>(zero_words[column / 8]);
        EXPECT_EQ((zero >> (4 * nibble)) & 15, 15u - (column + kColumnOf[nibble]));
      }
    }
  }
  EXPECT_EQ(tensors[2].name, "x.scales");
  EXPECT_EQ(tensors[2].shape, (std::vector<int64_t>{1, out}));
  EXPECT_STREQ(tensors[2].type->name, "F16");
}

// A written checkpoint must be readable as such: a vision encoder stays dense.
TEST(QuantizedConfigTest, LeavesAVisionTowerOut) {
  for (const char* model : {R"({})", R"({"vision_config": {}})"}) {
    for (const CheckpointFormat format :
         {CheckpointFormat::kAwq, CheckpointFormat::kCompressedTensors}) {
      const auto json = ParseJson(QuantizedConfig(model, {.format = format, .group_size = 128}),
                                  StatusCode::kModel, "");
      ASSERT_TRUE(json.ok()) << json.status().message();
      const auto config = ParseQuantization(*json->Find("quantization_config"));
      ASSERT_TRUE(config.ok()) << config.status().message();
      const bool has_vision = json->Find("vision_config") != nullptr;
      EXPECT_EQ(Excludes(*config, "model.visual.blocks.0.attn.qkv") != Exclusion::kNo, has_vision);
      EXPECT_EQ(Excludes(*config, "model.language_model.layers.0.mlp.up_proj"), Exclusion::kNo);
    }
  }
}

}  // namespace
}  // namespace kuiper
