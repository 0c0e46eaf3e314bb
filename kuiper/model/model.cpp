#include "kuiper/model/model.h"

#include <algorithm>
#include <utility>

#include "kuiper/base/log.h"
#include "kuiper/base/text.h"
#include "kuiper/model/manifest.h"
#include "kuiper/model/rope.h"
#include "kuiper/model/weight_placer.h"

namespace kuiper {
namespace {

StatusOr<RopeTable> MakeRopeTable(ComputeDevice& device, const DecoderConfig& config, int positions,
                                  std::vector<Buffer>* buffers) {
  constexpr int kRows = 4096;  // uploaded at a time
  const int dim = config.head_dim;
  const size_t table_bytes = static_cast<size_t>(positions) * dim * sizeof(float);
  KU_ASSIGN_OR_RETURN(Buffer table, device.Allocate(table_bytes));
  KU_ASSIGN_OR_RETURN(Buffer axes, device.Allocate(dim / 2 * sizeof(int32_t)));
  const RopeTable rope = {.cos_sin = table.As(DType::kF32, {positions, dim}),
                          .axis_of_pair = axes.As(DType::kI32, {dim / 2})};
  for (int begin = 0; begin < positions; begin += kRows) {
    const int end = std::min(positions, begin + kRows);
    std::vector<float> rows = RopeCosSin(config.rope, dim, positions, begin, end);
    device.Upload(rope.cos_sin.Rows(begin, end),
                  Tensor::Dense(rows.data(), DType::kF32, {end - begin, dim}));
    device.Sync();
  }
  std::vector<int32_t> zeros(dim / 2, 0);
  device.Upload(rope.axis_of_pair, Tensor::Dense(zeros.data(), DType::kI32, {dim / 2}));
  device.Sync();
  buffers->push_back(std::move(table));
  buffers->push_back(std::move(axes));
  return rope;
}

// A configuration with too few layers, or that knows nothing of a bias, gives another network.
void WarnOfUnused(const WeightSource& source, const WeightManifest& manifest) {
  std::vector<std::string> names = source.Unused();
  std::erase_if(names,
                [&](const std::string& name) { return name.ends_with(manifest.ignored_suffix); });
  if (names.empty()) return;
  LogWarning(source.files().path + ": config.json describes a network without " +
             std::to_string(names.size()) + " of the tensors, first " + Quoted(names[0]));
}

// Windows that no sequence outgrows are none: the layers see the same, and a plain causal layer may
// share what it reads (cascade attention).
void FitToContext(int context, DecoderConfig* config) {
  if (config->sliding_window >= context) config->layer_slides.clear();
  const auto sliding = std::count(config->layer_slides.begin(), config->layer_slides.end(), true);
  if (sliding > 0) {
    LogInfo("sliding window: " + std::to_string(sliding) + " of " + std::to_string(config->layers) +
            " layers see the last " + std::to_string(config->sliding_window) + " tokens");
  }
  const std::string rope = DescribeRope(config->rope, config->head_dim, context);
  if (!rope.empty()) LogInfo("RoPE: " + rope);
}

struct LoadedBytes {
  int64_t all = 0, read_by_a_step = 0;
};

// Fills the places of the manifest.
StatusOr<LoadedBytes> LoadWeights(const WeightManifest& manifest, const LoadOptions& options,
                                  DType matrix_type, WeightSource& source, WeightPlacer& placer) {
  LoadedBytes bytes;
  std::vector<std::string> narrowed;
  for (const Weight& weight : manifest.weights) {
    KU_ASSIGN_OR_RETURN(const Tensor host, source.Get(weight));
    const DType dtype = weight.is_matrix() ? matrix_type : host.dtype;
    const bool narrows = host.dtype != dtype && dtype != DType::kF32;
    if (narrows && !options.dtype.has_value()) narrowed.push_back(weight.name);
    KU_ASSIGN_OR_RETURN(const Tensor placed, placer.Place(weight.name, host, dtype));
    if (weight.tensor != nullptr) *weight.tensor = placed;
    if (weight.matrix != nullptr) *weight.matrix = DenseWeight(placed);
    // A table in which tokens are only looked up is not read.
    const bool is_table = weight.is_matrix() && weight.matrix == nullptr;
    bytes.all += placed.bytes();
    bytes.read_by_a_step += is_table ? 0 : placed.bytes();
  }
  placer.ReadMapped();
  WarnOfUnused(source, manifest);
  if (!narrowed.empty()) {
    LogWarning(source.files().path + ": " + std::to_string(narrowed.size()) +
               " matrices are stored in another type and rounded to " + DTypeName(matrix_type) +
               " like the embedding, first " + Quoted(narrowed[0]));
  }
  return bytes;
}

}  // namespace

const std::vector<int32_t>& Model::eos() const {
  return generation().eos.empty() ? config().eos : generation().eos;
}

StatusOr<std::unique_ptr<Model>> LoadModel(OpenedModel opened, Ops& ops,
                                           const LoadOptions& options) {
  KU_RETURN_IF_ERROR(opened.CheckSupported());
  DecoderConfig& config = opened.config.decoder;
  const int limit = config.rope.max_position;
  if (options.max_context < 0 || options.max_context > limit) {
    return Status(StatusCode::kInvalidArgument, "context " + std::to_string(options.max_context) +
                                                    " is longer than the model's limit " +
                                                    std::to_string(limit));
  }
  KU_ASSIGN_OR_RETURN(const WeightPlan plan, opened.PlanWeights(options.dtype));
  config.dtype = plan.matrix_type;
  const int context = options.max_context > 0 ? options.max_context : limit;
  FitToContext(context, &config);

  WeightSource& source = *opened.source;
  int64_t bytes_done = 0;
  WeightPlacer placer(source, ops, [&](int64_t bytes) {
    bytes_done += bytes;
    if (options.progress) options.progress(bytes_done, source.file_bytes());
  });
  DecoderWeights weights;
  const WeightManifest manifest = ListWeights(opened.config, &weights);
  KU_ASSIGN_OR_RETURN(const LoadedBytes loaded,
                      LoadWeights(manifest, options, config.dtype, source, placer));
  std::unique_ptr<Model> model(new Model());
  model->buffers_ = placer.TakeBuffers();
  KU_ASSIGN_OR_RETURN(weights.rope, MakeRopeTable(ops.device(), config, context, &model->buffers_));
  if (options.progress) options.progress(source.file_bytes(), source.file_bytes());

  model->weight_bytes_ = loaded.all;
  model->decode_bytes_ = loaded.read_by_a_step;
  model->decoder_ = std::make_unique<Decoder>(config, std::move(weights), ops);
  model->opened_ = std::move(opened);
  return model;
}

}  // namespace kuiper
