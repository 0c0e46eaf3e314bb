#include "kuiper/quant/quantize_model.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <set>
#include <system_error>
#include <utility>

#include "kuiper/base/hash.h"
#include "kuiper/base/json.h"
#include "kuiper/base/log.h"
#include "kuiper/base/parallel.h"
#include "kuiper/base/text.h"
#include "kuiper/model/convert.h"
#include "kuiper/model/file_weights.h"
#include "kuiper/quant/checkpoint_directory.h"
#include "kuiper/quant/layerwise_model.h"

namespace kuiper {
namespace {

constexpr int kGroupSizes[] = {128, 64, 32};

Status CheckScheme(const QuantizationScheme& scheme) {
  const auto bad = [](const std::string& message) {
    return Status(StatusCode::kInvalidArgument, message);
  };
  if (scheme.bits != 4 && scheme.bits != 8) return bad(Param("bits") + " is neither 4 nor 8");
  if (scheme.group_size != 0 && !std::ranges::count(kGroupSizes, scheme.group_size)) {
    return bad(Param("group_size") + " is none of 32, 64 and 128");
  }
  if (scheme.format != CheckpointFormat::kAwq) return OkStatus();
  if (scheme.bits != 4)
    return bad("AWQ has 4 bits; 8 need " + Param("format") + " compressed-tensors");
  return scheme.symmetric ? bad("AWQ is asymmetric") : OkStatus();
}

// The opened source model.
struct Source {
  std::unique_ptr<FileWeights> files;
  ModelConfig config;
  DecoderWeights weights;  // shapes only, not loaded
  WeightManifest manifest;
  DType matrix_type = DType::kF32;
};

// Chooses the group size if none is given. Returns kModel if the group size or another property of
// the scheme does not fit the shapes of all layers.
Status FitScheme(const Source& source, QuantizationScheme* scheme) {
  const auto check = [&](int group_size) {
    QuantizationScheme tried = *scheme;
    tried.group_size = group_size;
    for (const LayerWeights& layer : source.weights.layers) {
      KU_RETURN_IF_ERROR(QuantizedLayer::CheckShapes(source.manifest, layer, tried));
    }
    return OkStatus();
  };
  const auto largest =
      std::ranges::find_if(kGroupSizes, [&](int size) { return check(size).ok(); });
  const bool fits_one = largest != std::end(kGroupSizes);
  if (scheme->group_size == 0 && fits_one) {
    scheme->group_size = *largest;
    LogInfo("groups of " + std::to_string(*largest) +
            " weights, the largest of 128, 64 and 32 that divides the inputs of every layer");
    return OkStatus();
  }
  Status fits = check(scheme->group_size == 0 ? kGroupSizes[2] : scheme->group_size);
  if (fits.ok() || !fits_one) return fits;
  return Status(fits.code(), fits.message(),
                "leave " + Param("group_size") + " out, or use " + std::to_string(*largest));
}

StatusOr<std::unique_ptr<Source>> OpenSource(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::exists(path, ignored) && !std::filesystem::is_directory(path, ignored)) {
    return Status(StatusCode::kModel, path + " is no Hugging Face model directory");
  }
  auto source = std::make_unique<Source>();
  KU_ASSIGN_OR_RETURN(const OpenedModel opened, OpenModel(path));
  source->config = opened.config;
  KU_ASSIGN_OR_RETURN(source->files, FileWeights::Open(path));
  KU_ASSIGN_OR_RETURN(const JsonNode json,
                      ParseJson(source->files->files().config_json, StatusCode::kModel, path));
  const JsonNode* quantization = json.Find("quantization_config");
  if (quantization != nullptr && !quantization->IsNull()) {
    return Status(StatusCode::kModel, path + " is quantised already");
  }
  source->manifest = ListWeights(source->config, &source->weights);
  return source;
}

// Identifies everything that the result depends on; weights by WeightSource::Digest.
std::string Fingerprint(const Source& source, const QuantizeOptions& options) {
  const QuantizationScheme& s = options.scheme;
  std::string text = source.files->files().config_json;
  for (const int64_t number :
       {static_cast<int64_t>(s.format), int64_t{s.bits}, int64_t{s.group_size},
        int64_t{s.symmetric}, static_cast<int64_t>(options.text.size()),
        source.files->file_bytes()}) {
    text += ' ';
    text += std::to_string(number);
  }
  text += ' ' + HashText(source.files->Digest());
  return "kuiper quantize 2 " + HashText(Fnv1a64(options.text, Fnv1a64OfText(text)));
}

class QuantizeJob {
 public:
  QuantizeJob(const QuantizeOptions& options, Source& source, CheckpointDirectory& output, Ops& ops,
              int num_threads)
      : options_(options), source_(source), output_(output), ops_(ops), num_threads_(num_threads) {}

  Status Run(const std::string& path);

 private:
  int num_layers() const { return source_.config.decoder.layers; }
  Status WriteRest();
  Status WriteLayer(int layer, LayerwiseModel* model);
  PartTensor Copied(const std::string& name, const FileWeights::Item& item) const;
  void Tick();

  const QuantizeOptions& options_;
  Source& source_;
  CheckpointDirectory& output_;
  Ops& ops_;
  int num_threads_;
  int layer_ = 0, ticks_ = 0;  // ticks within the current layer
};

// Reports progress. One tick of each layer is for running the text through it.
void QuantizeJob::Tick() {
  if (!options_.progress) return;
  const int searches = options_.text.empty() ? 0 : QuantizedLayer::kNumSearches * kNumExponents;
  const double all = 1 + searches + 2 * QuantizedLayer::kNumMatrices;
  const double part = std::min(1.0, ++ticks_ / all);
  options_.progress((layer_ + part) / num_layers());
}

PartTensor QuantizeJob::Copied(const std::string& name, const FileWeights::Item& item) const {
  const SafetensorsEntry& entry = *item.entry;
  const std::string_view bytes = item.file->Bytes(entry);
  const std::optional<DType> type = entry.type->dtype;
  const bool is_float = type == DType::kF32 || type == DType::kF16 || type == DType::kBF16;
  const DType written = is_float ? options_.scheme.WrittenType(*type) : DType::kF32;
  const auto to = [](AtomicFile& out) {
    return [&out](std::string_view piece) { return out.Write(piece.data(), piece.size()); };
  };
  FileWeights& files = *source_.files;
  if (!is_float || written == *type) {
    return {{name, entry.type, entry.shape, static_cast<int64_t>(bytes.size())},
            [=, &files](AtomicFile& out) { return ForEachPiece(files, bytes, 8, to(out)); }};
  }
  const int64_t size = static_cast<int64_t>(bytes.size() / DTypeBytes(*type) * DTypeBytes(written));
  return {{name, FindSafetensorsType(SafetensorsTypeName(written)), entry.shape, size},
          [=, &files](AtomicFile& out) {
            return ForEachConverted(files, bytes, *type, written, "tensor " + Quoted(name),
                                    to(out));
          }};
}

// Writes the embedding, the LM head, the last norm, and tensors that are in no manifest.
Status QuantizeJob::WriteRest() {
  std::set<std::string> of_layers;
  for (const LayerWeights& layer : source_.weights.layers) {
    for (const std::string& name : QuantizedLayer::Names(source_.manifest, layer)) {
      of_layers.insert(name);
    }
  }
  std::vector<PartTensor> tensors;
  for (const auto& [name, item] : source_.files->items()) {
    if (!of_layers.contains(name)) tensors.push_back(Copied(name, item));
  }
  return output_.WritePart(0, std::move(tensors), 0);
}

Status QuantizeJob::WriteLayer(int layer, LayerwiseModel* model) {
  const QuantizationScheme& scheme = options_.scheme;
  LayerInputs inputs;
  if (model != nullptr) {
    model->RunNext([&](LayerLinear linear, const Tensor& x) {
      std::optional<InputStatistics>& of = inputs[static_cast<size_t>(linear)];
      if (!of.has_value()) {
        of.emplace(x.shape[1], scheme.group_size, model->num_tokens(), num_threads_);
      }
      of->Add(x.ptr<float>(), x.rows(), x.stride[0]);
    });
  }
  Tick();
  KU_ASSIGN_OR_RETURN(
      QuantizedLayer quantized,
      QuantizedLayer::Read(source_.manifest, source_.weights, layer, *source_.files, scheme));
  const auto tick = [this] { Tick(); };
  if (model != nullptr) quantized.MoveScales(inputs, ops_, tick);
  LayerReport report;
  report.layer = layer;
  KU_ASSIGN_OR_RETURN(std::vector<FileTensor> tensors,
                      quantized.Take(inputs, ops_, num_threads_, &report, tick));
  std::vector<PartTensor> part;
  part.reserve(tensors.size());
  for (FileTensor& tensor : tensors) part.push_back(InMemory(std::move(tensor)));
  KU_RETURN_IF_ERROR(output_.WritePart(layer + 1, std::move(part), report.error));
  if (options_.on_layer) options_.on_layer(report, num_layers());
  return OkStatus();
}

Status QuantizeJob::Run(const std::string& path) {
  if (!output_.FinishedPart(0).has_value()) KU_RETURN_IF_ERROR(WriteRest());
  int last = num_layers();  // one past the last layer that is still to be done
  while (last > 0 && output_.FinishedPart(last).has_value()) --last;
  std::unique_ptr<LayerwiseModel> model;
  if (!options_.text.empty() && last > 0) {
    KU_ASSIGN_OR_RETURN(model, LayerwiseModel::Open(path, options_.text, ops_));
  }
  for (layer_ = 0; layer_ < num_layers(); ++layer_) {
    ticks_ = 0;
    const std::optional<double> error = output_.FinishedPart(layer_ + 1);
    if (!error.has_value()) {
      KU_RETURN_IF_ERROR(WriteLayer(layer_, model.get()));
      continue;
    }
    if (model != nullptr && layer_ < last) model->RunNext();
    LayerReport report;
    report.layer = layer_;
    report.error = *error;
    if (options_.on_layer) options_.on_layer(report, num_layers());
  }
  return OkStatus();
}

}  // namespace

StatusOr<QuantizeResult> QuantizeModel(const std::string& source, const std::string& output,
                                       const QuantizeOptions& options) {
  KU_RETURN_IF_ERROR(CheckScheme(options.scheme));
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Source> opened, OpenSource(source));
  QuantizeOptions fitted = options;
  KU_RETURN_IF_ERROR(FitScheme(*opened, &fitted.scheme));
  const int num_parts = opened->config.decoder.layers + 1;
  KU_ASSIGN_OR_RETURN(
      const std::unique_ptr<CheckpointDirectory> directory,
      CheckpointDirectory::Open(output, Fingerprint(*opened, fitted), num_parts, kMaxShardBytes));
  const int num_threads = NumThreads(options.num_threads);
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Ops> ops,
                      MakeOps(Device{}, {.num_threads = options.num_threads}));
  KU_RETURN_IF_ERROR(QuantizeJob(fitted, *opened, *directory, *ops, num_threads).Run(source));
  QuantizeResult result;
  result.group_size = fitted.scheme.group_size;
  result.source_bytes = opened->files->file_bytes();
  KU_RETURN_IF_ERROR(
      directory->Finish(source, QuantizedConfig(opened->files->files().config_json, fitted.scheme),
                        &result.written_bytes));
  return result;
}

}  // namespace kuiper
