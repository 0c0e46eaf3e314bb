#include "kuiper/quant/layer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <utility>

#include "kuiper/base/check.h"
#include "kuiper/base/text.h"
#include "kuiper/model/convert.h"

namespace kuiper {
namespace {

constexpr float kLargest = 65504;  // largest value of FP16, in which scales may be stored

// Pointers to the weights of a layer, by the names in a manifest that was listed for it.
struct LayerPlaces {
  std::array<const Linear::Part*, QuantizedLayer::kNumMatrices> parts;

  explicit LayerPlaces(const LayerWeights& w)
      : parts{&w.qkv.parts[0],     &w.qkv.parts[1],     &w.qkv.parts[2], &w.o.parts[0],
              &w.gate_up.parts[0], &w.gate_up.parts[1], &w.down.parts[0]} {}
};

bool IsWithin(const void* place, const LayerWeights& layer) {
  return std::less_equal<>()(static_cast<const void*>(&layer), place) &&
         std::less<>()(place, static_cast<const void*>(&layer + 1));
}

bool IsOf(const Weight& weight, const LayerWeights& layer) {
  return (weight.matrix != nullptr && IsWithin(weight.matrix, layer)) ||
         (weight.tensor != nullptr && IsWithin(weight.tensor, layer));
}

// Returns "model.layers.0.mlp.up_proj" for "model.layers.0.mlp.up_proj.weight".
std::string PrefixOf(const std::string& name) {
  return name.substr(0, name.rfind('.'));
}

StatusOr<std::vector<float>> ReadFloats(WeightSource& source, const Weight& weight, DType* type) {
  KU_ASSIGN_OR_RETURN(const Tensor host, source.Get(weight));
  *type = host.dtype;
  std::vector<float> values(static_cast<size_t>(host.numel()));
  const bool fits = ConvertFloats(values.data(), DType::kF32, host.data, host.dtype, host.numel());
  KU_CHECK(fits, "FP32 holds every type");
  source.DontNeed(host.data, static_cast<size_t>(host.bytes()));
  for (const float value : values) {
    if (std::abs(value) <= kLargest) continue;
    return Status(StatusCode::kModel, source.files().path + ": tensor " + Quoted(weight.name) +
                                          " has values that are not finite or above 65504");
  }
  return values;
}

}  // namespace

Status QuantizedLayer::CheckShapes(const WeightManifest& manifest, const LayerWeights& layer,
                                   const QuantizationScheme& scheme) {
  constexpr int64_t kAwqWord = 8;
  for (const Weight& weight : manifest.weights) {
    if (!weight.is_matrix() || !IsOf(weight, layer)) continue;
    const std::string what = "the matrix " + Quoted(weight.name);
    if (weight.shape[1] % scheme.group_size != 0) {
      return Status(StatusCode::kModel, what + " has " + std::to_string(weight.shape[1]) +
                                            " inputs, no multiple of the group size " +
                                            std::to_string(scheme.group_size));
    }
    if (scheme.format == CheckpointFormat::kAwq && weight.shape[0] % kAwqWord != 0) {
      return Status(StatusCode::kModel, what + " has " + std::to_string(weight.shape[0]) +
                                            " outputs; AWQ needs a multiple of 8");
    }
  }
  return OkStatus();
}

std::vector<std::string> QuantizedLayer::Names(const WeightManifest& manifest,
                                               const LayerWeights& layer) {
  std::vector<std::string> names;
  for (const Weight& weight : manifest.weights) {
    if (IsOf(weight, layer)) names.push_back(weight.name);
  }
  return names;
}

StatusOr<QuantizedLayer> QuantizedLayer::Read(const WeightManifest& manifest,
                                              const DecoderWeights& weights, int layer,
                                              WeightSource& source,
                                              const QuantizationScheme& scheme) {
  const LayerWeights& places = weights.layers.at(layer);
  const LayerPlaces known(places);
  QuantizedLayer read(scheme);
  for (const Weight& weight : manifest.weights) {
    if (!IsOf(weight, places)) continue;
    DType type = DType::kF32;
    KU_ASSIGN_OR_RETURN(std::vector<float> values, ReadFloats(source, weight, &type));
    if (weight.is_matrix()) {
      const auto part = std::find_if(known.parts.begin(), known.parts.end(),
                                     [&](const auto* p) { return &p->weight == weight.matrix; });
      KU_CHECK(part != known.parts.end(), weight.name);
      read.matrices_[part - known.parts.begin()] = {
          PrefixOf(weight.name), type, {weight.shape[0], weight.shape[1], std::move(values)}};
      continue;
    }
    if (weight.tensor == &places.attn_norm) read.attn_norm_ = weight.name;
    if (weight.tensor == &places.mlp_norm) read.mlp_norm_ = weight.name;
    for (int i = 0; i < kNumMatrices; ++i) {
      if (weight.tensor == &known.parts[i]->bias) read.biases_[i] = weight.name;
    }
    read.vectors_[weight.name] = {scheme.WrittenType(type), std::move(values)};
  }
  return read;
}

LayerLinear QuantizedLayer::LinearOf(Part part) {
  return part <= kV    ? LayerLinear::kQkv
         : part == kO  ? LayerLinear::kO
         : part <= kUp ? LayerLinear::kGateUp
                       : LayerLinear::kDown;
}

std::vector<float> QuantizedLayer::Search(std::initializer_list<Part> parts,
                                          const InputStatistics& inputs, Ops& ops,
                                          const std::function<void()>& tick) const {
  std::vector<const FloatMatrix*> matrices;
  for (const Part part : parts) matrices.push_back(&matrices_[part].weight);
  return SearchScales(matrices, inputs, Codes(*parts.begin()), ops, tick);
}

void QuantizedLayer::MultiplyColumns(Part part, const std::vector<float>& s) {
  FloatMatrix& matrix = matrices_[part].weight;
  for (int64_t i = 0; i < matrix.out * matrix.in; ++i) matrix.values[i] *= s[i % matrix.in];
}

void QuantizedLayer::DivideRows(Part part, const std::vector<float>& s) {
  FloatMatrix& matrix = matrices_[part].weight;
  for (int64_t i = 0; i < matrix.out * matrix.in; ++i) matrix.values[i] /= s[i / matrix.in];
  if (biases_[part].empty()) return;
  std::vector<float>& bias = vectors_.at(biases_[part]).values;
  for (int64_t row = 0; row < matrix.out; ++row) bias[row] /= s[row];
}

// A norm is stored in a type with few bits. It is therefore rounded first, and the scale is
// computed from the rounded norm, so that the rounding adds no error.
void QuantizedLayer::MoveFromNorm(const std::string& norm, std::initializer_list<Part> parts,
                                  InputStatistics& inputs, Ops& ops,
                                  const std::function<void()>& tick) {
  std::vector<float> s = Search(parts, inputs, ops, tick);
  Vector& weight = vectors_.at(norm);
  std::vector<float> divided = weight.values;
  for (size_t k = 0; k < s.size(); ++k) divided[k] /= s[k];
  const std::string bytes = FloatBytes(divided, weight.type);
  const bool fits = ConvertFloats(divided.data(), DType::kF32, bytes.data(), weight.type,
                                  static_cast<int64_t>(divided.size()));
  KU_CHECK(fits, "FP32 holds every type");
  for (size_t k = 0; k < s.size(); ++k) {
    const float scale = weight.values[k] / divided[k];
    const bool usable = std::isfinite(scale) && scale > 0 && std::isfinite(divided[k]);
    s[k] = usable ? scale : 1.f;
    if (usable) weight.values[k] = divided[k];
  }
  for (const Part part : parts) MultiplyColumns(part, s);
  inputs.DivideBy(s);
}

void QuantizedLayer::MoveFromMatrix(Part from, Part to, InputStatistics& inputs, Ops& ops,
                                    const std::function<void()>& tick) {
  const std::vector<float> s = Search({to}, inputs, ops, tick);
  DivideRows(from, s);
  MultiplyColumns(to, s);
  inputs.DivideBy(s);
}

void QuantizedLayer::MoveScales(LayerInputs& inputs, Ops& ops, const std::function<void()>& tick) {
  const auto of = [&](LayerLinear linear) -> InputStatistics& {
    return inputs[static_cast<size_t>(linear)].value();
  };
  MoveFromNorm(attn_norm_, {kQ, kK, kV}, of(LayerLinear::kQkv), ops, tick);
  // If there are fewer value heads than query heads, one output of v is used by several inputs of
  // o.
  if (matrices_[kV].weight.out == matrices_[kO].weight.in) {
    MoveFromMatrix(kV, kO, of(LayerLinear::kO), ops, tick);
  }
  MoveFromNorm(mlp_norm_, {kGate, kUp}, of(LayerLinear::kGateUp), ops, tick);
  MoveFromMatrix(kUp, kDown, of(LayerLinear::kDown), ops, tick);
}

StatusOr<std::vector<FileTensor>> QuantizedLayer::Take(const LayerInputs& inputs, Ops& ops,
                                                       int num_threads, LayerReport* report,
                                                       const std::function<void()>& tick) {
  std::vector<FileTensor> tensors;
  for (const auto& [name, vector] : vectors_) {
    bool fits = true;
    tensors.push_back({name,
                       FindSafetensorsType(SafetensorsTypeName(vector.type)),
                       {static_cast<int64_t>(vector.values.size())},
                       FloatBytes(vector.values, vector.type, &fits)});
    if (!fits) return TooLargeFor(vector.type, "tensor " + Quoted(name));
  }
  double errors = 0, energies = 0;
  for (int i = 0; i < kNumMatrices; ++i) {
    const Part part = static_cast<Part>(i);
    FloatMatrix weight = std::exchange(matrices_[i].weight, {});
    const std::optional<InputStatistics>& x = inputs[static_cast<size_t>(LinearOf(part))];
    std::vector<float> shrinks;
    // Attention scores multiply queries by keys, so extreme values count twice: q and k keep their
    // full range.
    if (x.has_value() && part != kQ && part != kK) shrinks = SearchShrinks(weight, *x, Codes(part));
    const CodedMatrix coded =
        Encode(weight.values, weight.out, weight.in, shrinks, Codes(part), num_threads);
    const FloatMatrix difference = Difference(weight, Decode(coded));
    const auto energy = [&](const FloatMatrix& m) {
      if (x.has_value()) return OutputEnergy(m, *x, ops);
      double sum = 0;
      for (const float value : m.values) sum += static_cast<double>(value) * value;
      return sum;
    };
    const double error = energy(difference), whole = std::max(energy(weight), 1e-300);
    errors += error;
    energies += whole;
    report->matrices.push_back({matrices_[i].prefix, error / whole});
    for (FileTensor& tensor : scheme_.format == CheckpointFormat::kAwq
                                  ? PackAwq(matrices_[i].prefix, coded)
                                  : PackCompressedTensors(matrices_[i].prefix, coded)) {
      tensors.push_back(std::move(tensor));
    }
    tick();
  }
  report->error = errors / energies;
  return tensors;
}

}  // namespace kuiper
