#include "kuiper/model/model.h"

#include <algorithm>
#include <utility>

#include "kuiper/base/log.h"
#include "kuiper/base/text.h"
#include "kuiper/model/convert.h"
#include "kuiper/model/rope.h"

namespace kuiper {

// Brings weights to where the kernels read them. On the CPU a tensor that already has the right
// type stays where it is, in the mapped file; everything else is copied chunk by chunk, and the
// pages it was read from are given back, so that the peak is the model plus one chunk.
class ModelLoader {
 public:
  ModelLoader(OpenedModel opened, Ops& ops, const LoadOptions& options)
      : opened_(std::move(opened)), source_(opened_.source.get()), ops_(ops), options_(options) {}

  StatusOr<std::unique_ptr<Model>> Load();

 private:
  static constexpr int64_t kChunkBytes = int64_t{8} << 20;

  Status LoadTables();
  Status LoadLayer(int index);
  Status LoadRope();
  Status Vector(const std::string& name, int64_t size, Tensor* out);
  Status Matrix(const std::string& name, int64_t rows, int64_t cols, Tensor* out);
  Status AddPart(const std::string& prefix, int rows, int cols, bool bias, Linear* linear);
  Status Place(const std::string& name, const Tensor& host, DType dtype, Tensor* out);
  Status Copy(const std::string& name, const Tensor& host, const Tensor& dst);
  void ReadMapped();
  void WarnOfUnused() const;
  void Report(int64_t bytes);

  bool on_cpu() const { return ops_.device().type == DeviceType::kCPU; }

  OpenedModel opened_;
  WeightSource* source_;
  Ops& ops_;
  const LoadOptions& options_;
  std::unique_ptr<Model> model_;
  DecoderConfig* config_ = nullptr;
  DecoderWeights weights_;
  Buffer staging_;              // pinned, for uploads
  std::vector<Tensor> mapped_;  // tensors used in place
  int64_t bytes_done_ = 0;
  uint64_t num_random_ = 0;     // tensors made up so far, each from a seed of its own
  int num_narrowed_ = 0;        // matrices whose type is wider than the model's
  std::string first_narrowed_;  // and the first of them
};

StatusOr<std::unique_ptr<Model>> ModelLoader::Load() {
  model_.reset(new Model());
  KU_RETURN_IF_ERROR(opened_.CheckSupported());
  model_->config_ = std::move(opened_.config);
  model_->generation_ = std::move(opened_.generation);
  config_ = &model_->config_.decoder;
  if (options_.max_context < 0 || options_.max_context > config_->rope.max_position) {
    return Status(StatusCode::kInvalidArgument, "context " + std::to_string(options_.max_context) +
                                                    " is longer than the model's limit " +
                                                    std::to_string(config_->rope.max_position));
  }
  KU_RETURN_IF_ERROR(LoadTables());
  weights_.layers.resize(config_->layers);
  for (int i = 0; i < config_->layers; ++i) KU_RETURN_IF_ERROR(LoadLayer(i));
  KU_RETURN_IF_ERROR(LoadRope());
  ReadMapped();
  WarnOfUnused();
  if (num_narrowed_ > 0) {
    LogWarning(source_->files().path + ": " + std::to_string(num_narrowed_) +
               " matrices are stored in another type and rounded to " + DTypeName(config_->dtype) +
               " like the embedding, first " + Quoted(first_narrowed_));
  }
  if (options_.progress) options_.progress(source_->file_bytes(), source_->file_bytes());
  model_->decode_bytes_ = model_->weight_bytes_;
  if (!config_->tie_embeddings) model_->decode_bytes_ -= weights_.embed.bytes();
  model_->decoder_ = std::make_unique<Decoder>(*config_, std::move(weights_), ops_);
  model_->source_ = std::move(opened_.source);
  return std::move(model_);
}

// Embedding, head and final norm. The embedding's type is the model's.
Status ModelLoader::LoadTables() {
  const std::string embed = "model.embed_tokens.weight";
  const std::string head = "lm_head.weight";
  const DecoderConfig& c = *config_;
  // Some exports of tied models store the shared table under the head's name only.
  const bool embed_is_head = c.tie_embeddings && !source_->Has(embed) && source_->Has(head);
  const std::string& table = embed_is_head ? head : embed;
  KU_ASSIGN_OR_RETURN(const Tensor host, source_->Get(table, {c.vocab, c.hidden}));
  config_->dtype = options_.dtype.value_or(host.dtype);
  KU_RETURN_IF_ERROR(Place(table, host, config_->dtype, &weights_.embed));
  KU_RETURN_IF_ERROR(Vector("model.norm.weight", c.hidden, &weights_.final_norm));
  Linear& lm_head = weights_.lm_head;
  if (!c.tie_embeddings) {
    if (!source_->Has(head)) {
      return Status(StatusCode::kModel,
                    source_->files().path + ": tensor " + Quoted(head) + " is missing",
                    "config.json says that it is not tied to the embedding (tie_word_embeddings)");
    }
    return AddPart("lm_head", c.vocab, c.hidden, /*bias=*/false, &lm_head);
  }
  lm_head.in = c.hidden;
  lm_head.out = c.vocab;
  lm_head.num_parts = 1;
  lm_head.parts[0].weight = DenseWeight(weights_.embed);
  return OkStatus();
}

Status ModelLoader::LoadLayer(int index) {
  const DecoderConfig& c = *config_;
  const std::string prefix = "model.layers." + std::to_string(index) + ".";
  const std::string attn = prefix + "self_attn.";
  const std::string mlp = prefix + "mlp.";
  LayerWeights& w = weights_.layers[index];
  KU_RETURN_IF_ERROR(Vector(prefix + "input_layernorm.weight", c.hidden, &w.attn_norm));
  KU_RETURN_IF_ERROR(Vector(prefix + "post_attention_layernorm.weight", c.hidden, &w.mlp_norm));
  if (c.qk_norm) {
    KU_RETURN_IF_ERROR(Vector(attn + "q_norm.weight", c.head_dim, &w.q_norm));
    KU_RETURN_IF_ERROR(Vector(attn + "k_norm.weight", c.head_dim, &w.k_norm));
  }
  KU_RETURN_IF_ERROR(AddPart(attn + "q_proj", c.q_size(), c.hidden, c.qkv_bias, &w.qkv));
  KU_RETURN_IF_ERROR(AddPart(attn + "k_proj", c.kv_size(), c.hidden, c.qkv_bias, &w.qkv));
  KU_RETURN_IF_ERROR(AddPart(attn + "v_proj", c.kv_size(), c.hidden, c.qkv_bias, &w.qkv));
  KU_RETURN_IF_ERROR(AddPart(attn + "o_proj", c.hidden, c.q_size(), c.o_bias, &w.o));
  KU_RETURN_IF_ERROR(AddPart(mlp + "gate_proj", c.intermediate, c.hidden, c.mlp_bias, &w.gate_up));
  KU_RETURN_IF_ERROR(AddPart(mlp + "up_proj", c.intermediate, c.hidden, c.mlp_bias, &w.gate_up));
  return AddPart(mlp + "down_proj", c.hidden, c.intermediate, c.mlp_bias, &w.down);
}

Status ModelLoader::LoadRope() {
  constexpr int kRows = 1024;
  const int dim = config_->head_dim;
  const int positions =
      options_.max_context > 0 ? options_.max_context : config_->rope.max_position;
  const size_t table_bytes = static_cast<size_t>(positions) * dim * sizeof(float);
  KU_ASSIGN_OR_RETURN(Buffer table, ops_.Allocate(table_bytes));
  KU_ASSIGN_OR_RETURN(Buffer axes, ops_.Allocate(dim / 2 * sizeof(int32_t)));
  weights_.rope.cos_sin = table.As(DType::kF32, {positions, dim});
  weights_.rope.axis_of_pair = axes.As(DType::kI32, {dim / 2});
  for (int begin = 0; begin < positions; begin += kRows) {
    const int end = std::min(positions, begin + kRows);
    std::vector<float> rows = RopeCosSin(config_->rope, dim, begin, end);
    ops_.Upload(weights_.rope.cos_sin.Rows(begin, end),
                Tensor::Dense(rows.data(), DType::kF32, {end - begin, dim}));
    ops_.Sync();
  }
  std::vector<int32_t> zeros(dim / 2, 0);
  ops_.Upload(weights_.rope.axis_of_pair, Tensor::Dense(zeros.data(), DType::kI32, {dim / 2}));
  ops_.Sync();
  model_->buffers_.push_back(std::move(table));
  model_->buffers_.push_back(std::move(axes));
  return OkStatus();
}

Status ModelLoader::Vector(const std::string& name, int64_t size, Tensor* out) {
  KU_ASSIGN_OR_RETURN(const Tensor host, source_->Get(name, {size}));
  return Place(name, host, host.dtype, out);
}

Status ModelLoader::Matrix(const std::string& name, int64_t rows, int64_t cols, Tensor* out) {
  KU_ASSIGN_OR_RETURN(const Tensor host, source_->Get(name, {rows, cols}));
  const bool narrows = host.dtype != config_->dtype && config_->dtype != DType::kF32;
  if (narrows && !options_.dtype.has_value() && num_narrowed_++ == 0) first_narrowed_ = name;
  return Place(name, host, config_->dtype, out);
}

Status ModelLoader::AddPart(const std::string& prefix, int rows, int cols, bool bias,
                            Linear* linear) {
  Linear::Part& part = linear->parts[linear->num_parts++];
  Tensor weight;
  KU_RETURN_IF_ERROR(Matrix(prefix + ".weight", rows, cols, &weight));
  part.weight = DenseWeight(weight);
  if (bias) KU_RETURN_IF_ERROR(Vector(prefix + ".bias", rows, &part.bias));
  linear->in = cols;
  linear->out += rows;
  return OkStatus();
}

Status ModelLoader::Place(const std::string& name, const Tensor& host, DType dtype, Tensor* out) {
  const bool aligned = reinterpret_cast<uintptr_t>(host.data) % DTypeBytes(host.dtype) == 0;
  if (on_cpu() && !host.empty() && host.dtype == dtype && aligned) {
    mapped_.push_back(host);
    *out = host;
  } else {
    const size_t bytes = static_cast<size_t>(host.numel()) * DTypeBytes(dtype);
    KU_ASSIGN_OR_RETURN(Buffer buffer, ops_.Allocate(bytes));
    *out = host.rank == 1 ? buffer.As(dtype, {host.shape[0]})
                          : buffer.As(dtype, {host.shape[0], host.shape[1]});
    if (host.empty()) {
      ops_.FillRandom(*out, num_random_++);
    } else {
      KU_RETURN_IF_ERROR(Copy(name, host, *out));
    }
    model_->buffers_.push_back(std::move(buffer));
  }
  model_->weight_bytes_ += out->bytes();
  return OkStatus();
}

Status ModelLoader::Copy(const std::string& name, const Tensor& host, const Tensor& dst) {
  const int64_t count = host.numel();
  const int64_t chunk = kChunkBytes / 4;  // elements of the widest type
  const int64_t src_bytes = static_cast<int64_t>(DTypeBytes(host.dtype));
  const int64_t dst_bytes = static_cast<int64_t>(DTypeBytes(dst.dtype));
  const char* src = static_cast<const char*>(host.data);
  char* out = static_cast<char*>(dst.data);
  if (!on_cpu() && staging_.empty()) {
    KU_ASSIGN_OR_RETURN(staging_, ops_.AllocatePinned(kChunkBytes));
  }
  for (int64_t i = 0; i < count; i += chunk) {
    const int64_t n = std::min(chunk, count - i);
    const int64_t ahead = std::min(chunk, count - i - n);
    if (ahead > 0) source_->WillNeed(src + (i + n) * src_bytes, ahead * src_bytes);
    void* target = on_cpu() ? out + i * dst_bytes : staging_.data();
    if (!ConvertFloats(target, dst.dtype, src + i * src_bytes, host.dtype, n)) {
      return Status(StatusCode::kModel,
                    source_->files().path + ": tensor " + Quoted(name) +
                        " has values too large for " + DTypeName(dst.dtype),
                    "use --dtype bf16 or fp32");
    }
    if (!on_cpu()) {
      ops_.Upload(Tensor::Dense(out + i * dst_bytes, dst.dtype, {n}, dst.device),
                  Tensor::Dense(target, dst.dtype, {n}));
      ops_.Sync();  // the staging memory is used again
    }
    source_->DontNeed(src + i * src_bytes, n * src_bytes);
    Report(n * src_bytes);
  }
  return OkStatus();
}

// Brings the mapped tensors into memory in file order, so that a cold file is read sequentially and
// the first step does not wait for the disk.
void ModelLoader::ReadMapped() {
  std::vector<std::pair<const char*, int64_t>> chunks;
  for (const Tensor& t : mapped_) {
    const char* data = static_cast<const char*>(t.data);
    for (int64_t i = 0; i < t.bytes(); i += kChunkBytes) {
      chunks.emplace_back(data + i, std::min(kChunkBytes, t.bytes() - i));
    }
  }
  std::sort(chunks.begin(), chunks.end());
  constexpr size_t kAhead = 4;
  constexpr int64_t kPageBytes = 4096;
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (i + kAhead < chunks.size()) {
      source_->WillNeed(chunks[i + kAhead].first, chunks[i + kAhead].second);
    }
    for (int64_t byte = 0; byte < chunks[i].second; byte += kPageBytes) {
      (void)*static_cast<const volatile char*>(chunks[i].first + byte);
    }
    Report(chunks[i].second);
  }
}

// A configuration with too few layers, or that knows nothing of a bias, gives another network.
void ModelLoader::WarnOfUnused() const {
  std::vector<std::string> names = source_->Unused();
  std::erase_if(names, [&](const std::string& name) {
    // The embedding once more under the head's name, and a table that old exports kept.
    return (config_->tie_embeddings && name == "lm_head.weight") ||
           name.ends_with(".rotary_emb.inv_freq");
  });
  if (names.empty()) return;
  LogWarning(source_->files().path + ": config.json describes a network without " +
             std::to_string(names.size()) + " of the tensors, first " + Quoted(names[0]));
}

void ModelLoader::Report(int64_t bytes) {
  bytes_done_ += bytes;
  if (options_.progress) options_.progress(bytes_done_, source_->file_bytes());
}

const std::vector<int32_t>& Model::eos() const {
  return generation_.eos.empty() ? config_.eos : generation_.eos;
}

StatusOr<std::unique_ptr<Model>> LoadModel(OpenedModel opened, Ops& ops,
                                           const LoadOptions& options) {
  return ModelLoader(std::move(opened), ops, options).Load();
}

}  // namespace kuiper
