#include "kuiper/quant/checkpoint_directory.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "kuiper/base/text.h"

namespace kuiper {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kStateName = "quantize.state";
constexpr const char* kIndexName = "model.safetensors.index.json";
constexpr const char* kConfigName = "config.json";

Status CannotWrite(const std::string& path, const std::error_code& error) {
  return Status(StatusCode::kInternal, "cannot write " + path + ": " + error.message());
}

// A new directory, or one of ours.
Status MakeDirectory(const std::string& path) {
  std::error_code error;
  const bool there = fs::exists(path, error);
  if (there && !fs::is_directory(path, error)) {
    return Status(StatusCode::kInvalidArgument, path + " is no directory");
  }
  if (there && !fs::is_empty(path, error) && !fs::exists(path + "/" + kStateName, error)) {
    return Status(StatusCode::kInvalidArgument, path + " is not empty", "choose a new directory");
  }
  if (!there) fs::create_directories(path, error);
  return error ? CannotWrite(path, error) : OkStatus();
}

// Weights, and what we write ourselves.
bool IsCopied(const fs::directory_entry& entry) {
  std::error_code error;
  const std::string name = entry.path().filename().string();
  const std::string extension = entry.path().extension().string();
  constexpr std::array<const char*, 9> kWeights = {
      ".safetensors", ".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5", ".msgpack", ".ot"};
  const bool is_weights =
      std::find(kWeights.begin(), kWeights.end(), extension) != kWeights.end() ||
      name.ends_with(".safetensors.index.json") || name.ends_with(".bin.index.json");
  return entry.is_regular_file(error) && !is_weights && name != kConfigName && name[0] != '.';
}

Status CopyFile(const std::string& from, const std::string& to) {
  std::ifstream in(from, std::ios::binary);
  if (!in) return Status(StatusCode::kModel, "cannot read " + from + ": " + std::strerror(errno));
  AtomicFile out(to);
  std::vector<char> piece(size_t{1} << 20);
  while (in) {
    in.read(piece.data(), static_cast<std::streamsize>(piece.size()));
    KU_RETURN_IF_ERROR(out.Write(piece.data(), static_cast<size_t>(in.gcount())));
  }
  return out.Commit();
}

Status WriteText(const std::string& path, const std::string& text) {
  AtomicFile out(path);
  KU_RETURN_IF_ERROR(out.Write(text.data(), text.size()));
  return out.Commit();
}

// `sees`: the model has a vision tower, which stays as it is.
Json AwqConfig(const QuantizationScheme& scheme, bool sees) {
  return {{"quant_method", "awq"},
          {"bits", scheme.bits},
          {"group_size", scheme.group_size},
          {"zero_point", !scheme.symmetric},
          {"version", "gemm"},
          {"modules_to_not_convert", sees ? Json{"visual"} : Json()}};
}

Json CompressedTensorsConfig(const QuantizationScheme& scheme, bool sees) {
  Json ignore = {"lm_head"};
  if (sees) ignore.push_back("re:.*visual.*");
  const Json weights = {{"num_bits", scheme.bits},
                        {"type", "int"},
                        {"symmetric", scheme.symmetric},
                        {"strategy", "group"},
                        {"group_size", scheme.group_size},
                        {"dynamic", false},
                        {"actorder", nullptr}};
  const Json group = {{"targets", {"Linear"}},
                      {"weights", weights},
                      {"input_activations", nullptr},
                      {"output_activations", nullptr}};
  return {{"quant_method", "compressed-tensors"},
          {"format", "pack-quantized"},
          {"quantization_status", "compressed"},
          {"config_groups", {{"group_0", group}}},
          {"ignore", ignore},
          {"kv_cache_scheme", nullptr}};
}

}  // namespace

std::string QuantizedConfig(const std::string& original, const QuantizationScheme& scheme) {
  Json json = Json::parse(original, nullptr, /*allow_exceptions=*/false);
  const bool sees = json.contains("vision_config");
  if (scheme.format == CheckpointFormat::kAwq) {
    const bool new_key = json.contains("dtype") && !json.contains("torch_dtype");
    json[new_key ? "dtype" : "torch_dtype"] = "float16";
    json["quantization_config"] = AwqConfig(scheme, sees);
  } else {
    json["quantization_config"] = CompressedTensorsConfig(scheme, sees);
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

PartTensor InMemory(FileTensor tensor) {
  const SafetensorsOutput head{tensor.name, tensor.type, tensor.shape,
                               static_cast<int64_t>(tensor.bytes.size())};
  return {head, [bytes = std::move(tensor.bytes)](AtomicFile& out) {
            return out.Write(bytes.data(), bytes.size());
          }};
}

StatusOr<std::unique_ptr<CheckpointDirectory>> CheckpointDirectory::Open(
    const std::string& path, const std::string& fingerprint, int num_parts) {
  KU_RETURN_IF_ERROR(MakeDirectory(path));
  KU_ASSIGN_OR_RETURN(std::unique_ptr<AppendFile> state, AppendFile::Open(path + "/" + kStateName));
  std::unique_ptr<CheckpointDirectory> directory(
      new CheckpointDirectory(path, num_parts, std::move(state)));
  KU_RETURN_IF_ERROR(directory->ReadState(fingerprint));
  return directory;
}

// Lines "part ERROR" behind one with the fingerprint.
Status CheckpointDirectory::ReadState(const std::string& fingerprint) {
  const std::optional<std::string> first = state_->NextFinished();
  while (const std::optional<std::string> line = state_->NextFinished()) {
    char* end = nullptr;
    const long part = std::strtol(line->c_str(), &end, 10);
    std::error_code error;
    if (part < 0 || part >= num_parts_ || !fs::exists(NameOf(static_cast<int>(part)), error)) {
      continue;
    }
    finished_[static_cast<int>(part)] = std::strtod(end, nullptr);
  }
  if (!state_->torn().empty()) KU_RETURN_IF_ERROR(state_->CutTorn());
  if (!first.has_value()) return state_->Write(fingerprint + "\n");
  if (*first == fingerprint) return OkStatus();
  return Status(StatusCode::kInvalidArgument,
                path_ + " was begun with another model, text or other settings",
                "choose another output, or remove this one to begin again");
}

std::optional<double> CheckpointDirectory::FinishedPart(int part) const {
  const auto it = finished_.find(part);
  return it == finished_.end() ? std::nullopt : std::optional(it->second);
}

std::string CheckpointDirectory::NameOf(int part) const {
  char name[64];
  std::snprintf(name, sizeof name, "/model-%05d-of-%05d.safetensors", part + 1, num_parts_);
  return path_ + name;
}

Status CheckpointDirectory::WritePart(int part, std::vector<PartTensor> tensors, double error) {
  std::stable_sort(tensors.begin(), tensors.end(), [](const PartTensor& a, const PartTensor& b) {
    return a.head.type->bits > b.head.type->bits;
  });
  std::vector<SafetensorsOutput> outputs;
  outputs.reserve(tensors.size());
  for (const PartTensor& tensor : tensors) outputs.push_back(tensor.head);
  KU_ASSIGN_OR_RETURN(const std::string head,
                      SafetensorsHead(outputs, {{"format", "pt"}}, NameOf(part)));
  AtomicFile out(NameOf(part));
  KU_RETURN_IF_ERROR(out.Write(head.data(), head.size()));
  for (const PartTensor& tensor : tensors) KU_RETURN_IF_ERROR(tensor.write(out));
  KU_RETURN_IF_ERROR(out.Commit());
  finished_[part] = error;
  char line[64];
  std::snprintf(line, sizeof line, "%d %.17g\n", part, error);
  return state_->Write(line);
}

Status CheckpointDirectory::WriteIndex(int64_t* bytes) {
  *bytes = 0;
  Json map = Json::object();
  for (int part = 0; part < num_parts_; ++part) {
    KU_ASSIGN_OR_RETURN(const auto file, SafetensorsFile::Open(NameOf(part)));
    for (const auto& [name, entry] : file->header().tensors) {
      map[name] = NameOf(part).substr(path_.size() + 1);
      *bytes += entry.end - entry.begin;
    }
  }
  const Json index = {{"metadata", {{"total_size", *bytes}}}, {"weight_map", map}};
  return WriteText(path_ + "/" + kIndexName,
                   index.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

Status CheckpointDirectory::Finish(const std::string& source, const std::string& config_json,
                                   int64_t* bytes) {
  KU_RETURN_IF_ERROR(WriteIndex(bytes));
  std::error_code error;
  for (fs::directory_iterator it(source, error), end; !error && it != end; it.increment(error)) {
    if (!IsCopied(*it)) continue;
    KU_RETURN_IF_ERROR(CopyFile(it->path().string(), path_ + "/" + it->path().filename().string()));
  }
  if (error) return Status(StatusCode::kModel, "cannot read " + source + ": " + error.message());
  KU_RETURN_IF_ERROR(WriteText(path_ + "/" + kConfigName, config_json));
  fs::remove(path_ + "/" + kStateName, error);
  return error ? CannotWrite(path_ + "/" + kStateName, error) : OkStatus();
}

}  // namespace kuiper
