#include "tools/kuiper_bench_model.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "kuiper/model/config.h"

namespace kuiper::tools {
namespace {

struct NamedShape {
  std::string name;
  std::vector<int64_t> shape;
};

// Tensor names and shapes as Hugging Face stores them.
std::vector<NamedShape> TensorsOf(const DecoderConfig& d) {
  std::vector<NamedShape> tensors = {{"model.embed_tokens.weight", {d.vocab, d.hidden}},
                                     {"model.norm.weight", {d.hidden}}};
  if (!d.tie_embeddings) tensors.push_back({"lm_head.weight", {d.vocab, d.hidden}});
  for (int i = 0; i < d.layers; ++i) {
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    auto linear = [&](const std::string& name, int64_t out, int64_t in, bool bias) {
      tensors.push_back({layer + name + ".weight", {out, in}});
      if (bias) tensors.push_back({layer + name + ".bias", {out}});
    };
    tensors.push_back({layer + "input_layernorm.weight", {d.hidden}});
    tensors.push_back({layer + "post_attention_layernorm.weight", {d.hidden}});
    linear("self_attn.q_proj", d.q_size(), d.hidden, d.qkv_bias);
    linear("self_attn.k_proj", d.kv_size(), d.hidden, d.qkv_bias);
    linear("self_attn.v_proj", d.kv_size(), d.hidden, d.qkv_bias);
    linear("self_attn.o_proj", d.hidden, d.q_size(), d.o_bias);
    if (d.qk_norm) {
      tensors.push_back({layer + "self_attn.q_norm.weight", {d.head_dim}});
      tensors.push_back({layer + "self_attn.k_norm.weight", {d.head_dim}});
    }
    linear("mlp.gate_proj", d.intermediate, d.hidden, d.mlp_bias);
    linear("mlp.up_proj", d.intermediate, d.hidden, d.mlp_bias);
    linear("mlp.down_proj", d.hidden, d.intermediate, d.mlp_bias);
  }
  return tensors;
}

const char* SafetensorsName(DType dtype) {
  return dtype == DType::kF32 ? "F32" : dtype == DType::kF16 ? "F16" : "BF16";
}

// Fills with values of magnitude 2^-7 to 2^-6 and random sign, about what trained matrices have.
class RandomValues {
 public:
  void Fill(DType dtype, std::vector<uint8_t>* bytes) {
    uint8_t* p = bytes->data();
    const size_t size = DTypeBytes(dtype);
    for (size_t i = 0; i + size <= bytes->size(); i += size) {
      const uint32_t bits = Next();
      if (dtype == DType::kF32) {
        const uint32_t value = (bits & 0x807FFFFFu) | 0x3C000000u;
        std::memcpy(p + i, &value, size);
      } else {
        const uint16_t mask = dtype == DType::kF16 ? 0x83FF : 0x807F;
        const uint16_t exponent = dtype == DType::kF16 ? 0x2000 : 0x3C00;
        const uint16_t value = static_cast<uint16_t>((bits & mask) | exponent);
        std::memcpy(p + i, &value, size);
      }
    }
  }

 private:
  uint32_t Next() {  // xorshift64* (Vigna, 2016)
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return static_cast<uint32_t>((state_ * 0x2545F4914F6CDD1Dull) >> 32);
  }
  uint64_t state_ = 88172645463325252ull;
};

std::vector<uint8_t> Ones(DType dtype, int64_t count) {
  const uint32_t one = dtype == DType::kF32 ? 0x3F800000u : dtype == DType::kF16 ? 0x3C00 : 0x3F80;
  const size_t size = DTypeBytes(dtype);
  std::vector<uint8_t> bytes(count * size);
  for (size_t i = 0; i < bytes.size(); i += size) std::memcpy(&bytes[i], &one, size);
  return bytes;
}

Status WriteWeights(const std::string& path, const DecoderConfig& config, DType dtype) {
  const std::vector<NamedShape> tensors = TensorsOf(config);
  nlohmann::ordered_json header;
  int64_t offset = 0;
  auto count_of = [](const NamedShape& t) {
    int64_t n = 1;
    for (int64_t extent : t.shape) n *= extent;
    return n;
  };
  for (const NamedShape& t : tensors) {
    const int64_t end = offset + count_of(t) * static_cast<int64_t>(DTypeBytes(dtype));
    header[t.name] = {
        {"dtype", SafetensorsName(dtype)}, {"shape", t.shape}, {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.append((8 - text.size() % 8) % 8, ' ');
  const uint64_t length = text.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), sizeof(length));
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  RandomValues random;
  for (const NamedShape& t : tensors) {
    const bool is_norm = t.name.find("norm") != std::string::npos;
    const int64_t rows = t.shape.size() == 2 ? t.shape[0] : 1;
    const int64_t row = count_of(t) / rows;
    std::vector<uint8_t> bytes(row * DTypeBytes(dtype));
    for (int64_t r = 0; r < rows; ++r) {
      if (is_norm) {
        bytes = Ones(dtype, row);
      } else {
        random.Fill(dtype, &bytes);
      }
      file.write(reinterpret_cast<const char*>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()));
    }
  }
  file.close();
  if (!file) return Status(StatusCode::kInternal, "cannot write " + path + " (disk full?)");
  return OkStatus();
}

}  // namespace

InventedModel::~InventedModel() {
  std::error_code ignored;
  if (!dir_.empty()) std::filesystem::remove_all(dir_, ignored);
}

Status InventedModel::Make(const std::string& config_path, std::optional<DType> dtype,
                           const std::string& parent) {
  std::ifstream in(config_path);
  if (!in) return Status(StatusCode::kModel, "cannot read " + config_path);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  KU_ASSIGN_OR_RETURN(const ModelConfig config, ParseModelConfig(text));
  if (!config.supported) {
    return Status(StatusCode::kModel, config_path + ": this version cannot run " +
                                          FamilyName(config.family) + " models");
  }
  std::string dir = parent + "/kuiper_bench.XXXXXX";
  if (mkdtemp(dir.data()) == nullptr) {
    return Status(StatusCode::kInternal,
                  "cannot make a directory in " + parent + ": " + std::strerror(errno));
  }
  dir_ = dir;
  std::ofstream(dir_ + "/config.json") << text;
  return WriteWeights(weights_path(), config.decoder, dtype.value_or(config.decoder.dtype));
}

std::string LargestWeightsFile(const std::string& model_path) {
  std::error_code error;
  if (!std::filesystem::is_directory(model_path, error)) return model_path;
  std::string largest;
  uintmax_t most = 0;
  for (std::filesystem::directory_iterator it(model_path, error), end; !error && it != end;
       it.increment(error)) {
    if (it->path().extension() != ".safetensors") continue;
    const uintmax_t bytes = it->file_size(error);
    if (error || bytes < most) continue;
    most = bytes;
    largest = it->path().string();
  }
  return largest;
}

}  // namespace kuiper::tools
