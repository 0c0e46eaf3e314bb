// One layer of a decoder on its way into a quantised checkpoint: its float weights, the scales that
// move from one to another, and the tensors they become. Knows no files but the source of weights.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/model/decoder.h"
#include "kuiper/model/manifest.h"
#include "kuiper/model/weight_source.h"
#include "kuiper/quant/packing.h"
#include "kuiper/quant/scale_search.h"

namespace kuiper {

// What a quantised checkpoint consists of.
enum class CheckpointFormat { kCompressedTensors, kAwq };

struct QuantizationScheme {
  CheckpointFormat format = CheckpointFormat::kCompressedTensors;
  int bits = 4;
  int group_size = 0;  // 0: chosen for the model
  bool symmetric = false;

  // The type in which tensors are written that the source has as `type`: AWQ's kernels know FP16.
  DType WrittenType(DType type) const {
    return format == CheckpointFormat::kAwq && type != DType::kI32 ? DType::kF16 : type;
  }
  CodeScheme codes(DType matrix_type) const {
    return {bits, group_size, symmetric, WrittenType(matrix_type)};
  }
};

// What quantising a layer did.
struct LayerReport {
  struct Matrix {
    std::string name;  // of the linear layer
    double error = 0;  // see `error`
  };
  int layer = 0;
  std::vector<Matrix> matrices;
  // Squared error over the squared values, of the outputs on the text; without one, of the weights.
  double error = 0;
};

// By LayerLinear.
using LayerInputs = std::array<std::optional<InputStatistics>, 4>;

class QuantizedLayer {
 public:
  // Reads the weights of the layer as FP32. `manifest` is of `weights`. kModel when one is missing,
  // is not finite or is too large.
  static StatusOr<QuantizedLayer> Read(const WeightManifest& manifest,
                                       const DecoderWeights& weights, int layer,
                                       WeightSource& source, const QuantizationScheme& scheme);
  // Why the scheme cannot take the matrices of the layer; looks at shapes alone. kModel.
  static Status CheckShapes(const WeightManifest& manifest, const LayerWeights& layer,
                            const QuantizationScheme& scheme);

  // The names of the layer's tensors.
  static std::vector<std::string> Names(const WeightManifest& manifest, const LayerWeights& layer);

  // Moves scales from norms and from v and up into the matrices behind them, which lets inputs that
  // matter keep more of their precision. What the layer computes stays the same; the inputs change
  // with it. `tick` is called kNumExponents times for each of at most four searches.
  void MoveScales(LayerInputs& inputs, Ops& ops, const std::function<void()>& tick);
  static constexpr int kNumSearches = 4;
  // Rounds the matrices and gives the tensors of the layer, which has no weights any more. `inputs`
  // are empty: extremes stay, and the error is that of the weights. kModel when a value does not
  // fit the type in which it is written.
  StatusOr<std::vector<FileTensor>> Take(const LayerInputs& inputs, Ops& ops, int num_threads,
                                         LayerReport* report, const std::function<void()>& tick);
  static constexpr int kNumMatrices = 7;

 private:
  enum Part { kQ, kK, kV, kO, kGate, kUp, kDown };
  struct Matrix {
    std::string prefix;  // of its tensors
    DType type = DType::kF32;
    FloatMatrix weight;
  };
  struct Vector {
    DType type = DType::kF32;  // as it will be written
    std::vector<float> values;
  };

  explicit QuantizedLayer(const QuantizationScheme& scheme) : scheme_(scheme) {}

  CodeScheme Codes(Part part) const { return scheme_.codes(matrices_[part].type); }
  std::vector<float> Search(std::initializer_list<Part> parts, const InputStatistics& inputs,
                            Ops& ops, const std::function<void()>& tick) const;
  void MultiplyColumns(Part part, const std::vector<float>& s);
  void DivideRows(Part part, const std::vector<float>& s);
  void MoveFromNorm(const std::string& norm, std::initializer_list<Part> parts,
                    InputStatistics& inputs, Ops& ops, const std::function<void()>& tick);
  void MoveFromMatrix(Part from, Part to, InputStatistics& inputs, Ops& ops,
                      const std::function<void()>& tick);
  static LayerLinear LinearOf(Part part);

  QuantizationScheme scheme_;
  std::array<Matrix, kNumMatrices> matrices_;
  std::map<std::string, Vector> vectors_;         // norms and biases by the names of their tensors
  std::string attn_norm_, mlp_norm_;              // among them
  std::array<std::string, kNumMatrices> biases_;  // "" where there is none
};

}  // namespace kuiper
