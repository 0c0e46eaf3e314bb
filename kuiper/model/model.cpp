#include "kuiper/model/model.h"

#include <algorithm>
#include <utility>

#include "kuiper/base/log.h"
#include "kuiper/base/text.h"
#include "kuiper/model/manifest.h"
#include "kuiper/model/quantized/int8_rows.h"
#include "kuiper/model/rope.h"
#include "kuiper/model/weight_placer.h"

namespace kuiper {
namespace {

StatusOr<RopeTable> MakeRopeTable(ComputeDevice& device, const DecoderConfig& config, int positions,
                                  std::vector<Buffer>* buffers) {
  constexpr int kRows = 4096;  // rows uploaded at a time
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
  std::vector<int32_t> axis_of_pair = RopeAxes(config.rope, dim);
  device.Upload(rope.axis_of_pair, Tensor::Dense(axis_of_pair.data(), DType::kI32, {dim / 2}));
  device.Sync();
  buffers->push_back(std::move(table));
  buffers->push_back(std::move(axes));
  return rope;
}

// Unused tensors mean a wrong network: the configuration has too few layers or does not mention a
// bias.
void WarnAboutUnused(const WeightSource& source, const WeightManifest& manifest) {
  std::vector<std::string> names = source.Unused();
  std::erase_if(names, [&](const std::string& name) {
    return name.ends_with(manifest.ignored_suffix) || IsKvScale(name);
  });
  if (names.empty()) return;
  LogWarning(source.files().path + ": config.json describes a network without " +
             std::to_string(names.size()) + " of the tensors, first " + Quoted(names[0]));
}

// Drops windows at least as long as the context: the layers attend to the same tokens without them.
// A plain causal layer can use cascade attention.
void FitToContext(int context, DecoderConfig* config) {
  if (config->sliding_window >= context) config->layer_slides.clear();
  const auto sliding = std::count(config->layer_slides.begin(), config->layer_slides.end(), true);
  if (sliding > 0) {
    LogInfo("sliding window: " + std::to_string(sliding) + " of " + std::to_string(config->layers) +
            " layers attend to the last " + std::to_string(config->sliding_window) + " tokens");
  }
  const std::string rope = DescribeRope(config->rope, config->head_dim, context);
  if (!rope.empty()) LogInfo("RoPE: " + rope);
}

// Loads all weights of a manifest to their destinations.
class WeightLoader {
 public:
  WeightLoader(const WeightOptions& options, DType matrix_type, WeightSource& source,
               WeightPlacer& placer)
      : options_(options), matrix_type_(matrix_type), source_(source), placer_(placer) {}

  Status Load(const WeightManifest& manifest, bool warn_of_unused) {
    for (const Weight& weight : manifest.weights) {
      bool is_packed = false;
      if (weight.linear != nullptr) {
        KU_ASSIGN_OR_RETURN(is_packed, LoadPacked(weight));
      }
      if (!is_packed) KU_RETURN_IF_ERROR(LoadDense(weight));
      if (weight.linear != nullptr) placer_.Prepack(weight.linear);
    }
    placer_.ReadMapped();
    if (warn_of_unused) WarnAboutUnused(source_, manifest);
    if (!rounded_names_.empty()) {
      LogWarning(source_.files().path + ": " + std::to_string(rounded_names_.size()) +
                 " matrices are stored in another type and rounded to " + DTypeName(matrix_type_) +
                 " like the embedding, first " + Quoted(rounded_names_[0]));
    }
    return OkStatus();
  }

  int64_t bytes() const { return bytes_; }
  int64_t bytes_read_by_a_step() const { return bytes_read_by_a_step_; }

 private:
  // Returns false if the source has the matrix dense.
  StatusOr<bool> LoadPacked(const Weight& weight) {
    KU_ASSIGN_OR_RETURN(const std::optional<PackedMatrix> packed, source_.GetPacked(weight));
    if (!packed.has_value()) return false;
    KU_ASSIGN_OR_RETURN(const WeightMatrix matrix, placer_.PlacePacked(*packed));
    Take(weight, matrix, packed->bytes());
    return true;
  }

  Status LoadDense(const Weight& weight) {
    KU_ASSIGN_OR_RETURN(const Tensor host, source_.Get(weight));
    const bool becomes_int8 = options_.int8_head && weight.is_head();
    if (becomes_int8) {
      // Must precede the placement of a tied table, which may stay in the pages that PlaceAsInt8
      // releases.
      KU_ASSIGN_OR_RETURN(const WeightMatrix head,
                          placer_.PlaceAsInt8(weight.name, host, Int8RowsFormat()));
      LogInfo(Quoted(weight.name) +
              " is quantised to INT8 for the head: its logits differ from "
              "those of the file's weights");
      Take(weight, head, head.format.Bytes(head.rows(), host.shape[1]));
      if (weight.tensor == nullptr) return OkStatus();
    }
    const DType dtype = weight.is_matrix() ? matrix_type_ : host.dtype;
    const bool loses_precision = host.dtype != dtype && dtype != DType::kF32;
    if (loses_precision && !options_.dtype.has_value()) rounded_names_.push_back(weight.name);
    KU_ASSIGN_OR_RETURN(const Tensor placed, placer_.Place(weight.name, host, dtype));
    if (weight.tensor != nullptr) *weight.tensor = placed;
    const bool is_matrix_of_layer = weight.matrix != nullptr && !becomes_int8;
    if (is_matrix_of_layer) *weight.matrix = DenseWeight(placed);
    // An embedding table that is only looked up does not count as read.
    const bool is_table = weight.is_matrix() && !is_matrix_of_layer;
    bytes_ += placed.bytes();
    bytes_read_by_a_step_ += is_table || weight.is_vision ? 0 : placed.bytes();
    return OkStatus();
  }

  void Take(const Weight& weight, const WeightMatrix& matrix, int64_t bytes) {
    *weight.matrix = matrix;
    WeightFormat& format = weight.matrix->format;
    const bool rounds_x = options_.int8_activations && format.has_integers();
    format.operand_type = rounds_x ? DType::kI8 : matrix_type_;
    bytes_ += bytes;
    bytes_read_by_a_step_ += bytes;
  }

  const WeightOptions& options_;
  DType matrix_type_;
  WeightSource& source_;
  WeightPlacer& placer_;
  std::vector<std::string> rounded_names_;
  int64_t bytes_ = 0, bytes_read_by_a_step_ = 0;
};

}  // namespace

std::vector<int32_t> Model::eos() const {
  std::vector<int32_t> eos = generation().eos;
  for (const int32_t id : config().eos) {
    if (std::find(eos.begin(), eos.end(), id) == eos.end()) eos.push_back(id);
  }
  return eos;
}

StatusOr<std::unique_ptr<Model>> LoadModel(OpenedModel opened, Ops& ops,
                                           const LoadOptions& options) {
  DecoderConfig& config = opened.config.decoder;
  const int limit = config.rope.max_position;
  if (options.max_context < 0 || options.max_context > limit) {
    return Status(StatusCode::kInvalidArgument, "context " + std::to_string(options.max_context) +
                                                    " is longer than the model's limit " +
                                                    std::to_string(limit));
  }
  KU_RETURN_IF_ERROR(CheckWeightOptions(options.weights, ops.device().id()));
  KU_ASSIGN_OR_RETURN(const WeightPlan plan, opened.PlanWeights(options.weights));
  config.dtype = plan.matrix_type;
  const int context = options.max_context > 0 ? options.max_context : limit;
  FitToContext(context, &config);

  WeightSource& source = *opened.source;
  // Not for other devices: memory in the page cache may be unavailable to them, as on a Jetson.
  if (ops.device().traits().reads_host_memory) source.KeepCached();
  int64_t bytes_done = 0;
  WeightPlacer placer(source, ops, options.mapped, options.num_threads, [&](int64_t bytes) {
    bytes_done += bytes;
    if (options.progress) options.progress(bytes_done, source.file_bytes());
  });
  const QuantizationConfig& quantization = opened.config.quantization;
  if (quantization.packing != QuantizationConfig::Packing::kNone) {
    LogInfo("quantised weights: " + quantization.Describe());
  }
  DecoderWeights weights;
  VisionWeights vision;
  const WeightManifest manifest = ListWeights(opened.config, &weights, &vision);
  WeightLoader loader(options.weights, config.dtype, source, placer);
  KU_RETURN_IF_ERROR(loader.Load(manifest, options.warn_of_unused));
  if (config.tie_embeddings) placer.Prepack(&weights.lm_head);
  std::unique_ptr<Model> model(new Model());
  model->in_files_ = placer.has_mapped();
  model->buffers_ = placer.TakeBuffers();
  KU_ASSIGN_OR_RETURN(weights.rope, MakeRopeTable(ops.device(), config, context, &model->buffers_));
  if (options.progress) options.progress(source.file_bytes(), source.file_bytes());

  model->weight_bytes_ = loader.bytes();
  model->decode_bytes_ = loader.bytes_read_by_a_step();
  model->decoder_ = std::make_unique<Decoder>(config, std::move(weights), ops);
  if (opened.config.vision.has_value()) {
    model->vision_ = std::make_unique<VisionEncoder>(*opened.config.vision, std::move(vision), ops);
  }
  model->opened_ = std::move(opened);
  return model;
}

}  // namespace kuiper
