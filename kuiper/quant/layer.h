// One decoder layer during quantisation: its float weights, the scales that move between them, and
// the resulting tensors. Depends on no files except the source of weights.
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

// The format of a quantised checkpoint.
enum class CheckpointFormat { kCompressedTensors, kAwq };

struct QuantizationScheme {
  CheckpointFormat format = CheckpointFormat::kCompressedTensors;
  int bits = 4;
  int group_size = 0;  // 0: chosen to fit the model
  bool symmetric = false;

  // Returns the written type of a tensor that the source has as `type`: AWQ's kernels support FP16
  // only.
  DType WrittenType(DType type) const {
    return format == CheckpointFormat::kAwq && type != DType::kI32 ? DType::kF16 : type;
  }
  CodeScheme codes(DType matrix_type) const {
    return {bits, group_size, symmetric, WrittenType(matrix_type)};
  }
};

// The result of quantising a layer.
struct LayerReport {
  struct Matrix {
    std::string name;  // name of the linear layer
    double error = 0;  // see `error`
  };
  int layer = 0;
  std::vector<Matrix> matrices;
  // Squared error over the squared values: of the outputs on the text, or of the weights if there
  // is no text.
  double error = 0;
};

// Statistics of the inputs, indexed by LayerLinear.
using LayerInputs = std::array<std::optional<InputStatistics>, 4>;

class QuantizedLayer {
 public:
  // Reads the weights of the layer as FP32. `manifest` was listed for `weights`. Returns kModel if
  // one is missing, not finite or too large.
  static StatusOr<QuantizedLayer> Read(const WeightManifest& manifest,
                                       const DecoderWeights& weights, int layer,
                                       WeightSource& source, const QuantizationScheme& scheme);
  // Returns kModel if the scheme does not support the layer's matrices; checks shapes only.
  static Status CheckShapes(const WeightManifest& manifest, const LayerWeights& layer,
                            const QuantizationScheme& scheme);

  // Returns the names of the layer's tensors.
  static std::vector<std::string> Names(const WeightManifest& manifest, const LayerWeights& layer);

  // Moves scales from norms and from v and up into the matrices that follow them, so that important
  // inputs keep more precision. The layer's output stays the same; `inputs` change accordingly.
  // Calls `tick` kNumExponents times for each of at most four searches.
  void MoveScales(LayerInputs& inputs, Ops& ops, const std::function<void()>& tick);
  static constexpr int kNumSearches = 4;
  // Rounds the matrices and returns the layer's tensors; the layer then holds no weights. If
  // `inputs` is empty, groups keep their full range, and the error is that of the weights. Returns
  // kModel if a value does not fit the type in which it is written.
  StatusOr<std::vector<FileTensor>> Take(const LayerInputs& inputs, Ops& ops, int num_threads,
                                         LayerReport* report, const std::function<void()>& tick);
  static constexpr int kNumMatrices = 7;

 private:
  enum Part { kQ, kK, kV, kO, kGate, kUp, kDown };
  struct Matrix {
    std::string prefix;  // prefix of the layer's tensor names
    DType type = DType::kF32;
    FloatMatrix weight;
  };
  struct Vector {
    DType type = DType::kF32;  // type in which it is written
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
  std::map<std::string, Vector> vectors_;         // norms and biases, by tensor name
  std::string attn_norm_, mlp_norm_;              // among them
  std::array<std::string, kNumMatrices> biases_;  // "" where there is none
};

}  // namespace kuiper
