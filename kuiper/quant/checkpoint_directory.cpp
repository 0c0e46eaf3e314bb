#include "kuiper/quant/checkpoint_directory.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "kuiper/base/text.h"
#include "kuiper/base/to_json.h"

namespace kuiper {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kStateName = "quantize.state";
constexpr const char* kConfigName = "config.json";

Status CannotWrite(const std::string& path, const std::error_code& error) {
  return Status(StatusCode::kInternal, "cannot write " + path + ": " + error.message());
}

// Makes a new directory, or accepts one that is empty or has the state file of an earlier run.
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

// False for weights, for hidden files and for config.json, which is written separately.
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
  AtomicFile out(to);
  KU_RETURN_IF_ERROR(AppendBytes(from, 0, -1, out));
  return out.Commit();
}

Status WriteText(const std::string& path, const std::string& text) {
  AtomicFile out(path);
  KU_RETURN_IF_ERROR(out.Write(text.data(), text.size()));
  return out.Commit();
}

// `sees`: the model has a vision encoder, which stays dense.
Json AwqConfig(const QuantizationScheme& scheme, bool has_vision) {
  return {{"quant_method", "awq"},
          {"bits", scheme.bits},
          {"group_size", scheme.group_size},
          {"zero_point", !scheme.symmetric},
          {"version", "gemm"},
          {"modules_to_not_convert", has_vision ? Json{"visual"} : Json()}};
}

Json CompressedTensorsConfig(const QuantizationScheme& scheme, bool has_vision) {
  Json ignore = {"lm_head"};
  if (has_vision) ignore.push_back("re:.*visual.*");
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
  Json json = ToJson(ParseJson(original, StatusCode::kModel, "config.json").value());
  const bool has_vision = json.contains("vision_config");
  if (scheme.format == CheckpointFormat::kAwq) {
    const bool new_key = json.contains("dtype") && !json.contains("torch_dtype");
    json[new_key ? "dtype" : "torch_dtype"] = "float16";
    json["quantization_config"] = AwqConfig(scheme, has_vision);
  } else {
    json["quantization_config"] = CompressedTensorsConfig(scheme, has_vision);
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

CheckpointDirectory::CheckpointDirectory(std::string path, int num_parts, int64_t max_shard_bytes,
                                         std::unique_ptr<AppendFile> state)
    : path_(std::move(path)), max_shard_bytes_(max_shard_bytes), state_(std::move(state)) {
  for (int part = 0; part < num_parts; ++part) {
    parts_.push_back(path_ + "/quantize.part" + std::to_string(part));
  }
}

StatusOr<std::unique_ptr<CheckpointDirectory>> CheckpointDirectory::Open(
    const std::string& path, const std::string& fingerprint, int num_parts,
    int64_t max_shard_bytes) {
  KU_RETURN_IF_ERROR(MakeDirectory(path));
  KU_ASSIGN_OR_RETURN(std::unique_ptr<AppendFile> state, AppendFile::Open(path + "/" + kStateName));
  std::unique_ptr<CheckpointDirectory> directory(
      new CheckpointDirectory(path, num_parts, max_shard_bytes, std::move(state)));
  KU_RETURN_IF_ERROR(directory->ReadState(fingerprint));
  return directory;
}

// Reads the fingerprint in the first line, then lines "part ERROR", and "shards NUMBER TENSORS"
// once all parts are complete.
Status CheckpointDirectory::ReadState(const std::string& fingerprint) {
  const std::optional<std::string> first = state_->NextFinished();
  while (const std::optional<std::string> line = state_->NextFinished()) {
    ShardPlan plan;
    int part = 0;
    double error = 0;
    if (std::sscanf(line->c_str(), "shards %d %zu", &plan.num_shards, &plan.num_tensors) == 2) {
      plan_ = plan;
    } else if (std::sscanf(line->c_str(), "%d %lf", &part, &error) == 2) {
      finished_[part] = error;
    }
  }
  std::erase_if(finished_, [this](const auto& entry) {
    const auto [part, value] = entry;
    std::error_code error;
    const bool is_known = part >= 0 && static_cast<size_t>(part) < parts_.size();
    return !is_known || (!plan_.has_value() && !fs::exists(parts_[part], error));
  });
  if (!state_->partial_line().empty()) KU_RETURN_IF_ERROR(state_->CutPartialLine());
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

Status CheckpointDirectory::WritePart(int part, std::vector<PartTensor> tensors, double error) {
  KU_RETURN_IF_ERROR(WriteSafetensors(parts_.at(part), std::move(tensors)));
  finished_[part] = error;
  char line[64];
  std::snprintf(line, sizeof line, "%d %.17g\n", part, error);
  return state_->Write(line);
}

Status CheckpointDirectory::Finish(const std::string& source, const std::string& config_json,
                                   int64_t* bytes) {
  if (!plan_.has_value()) {
    KU_ASSIGN_OR_RETURN(plan_, PlanShards(parts_, max_shard_bytes_));
    KU_RETURN_IF_ERROR(state_->Write("shards " + std::to_string(plan_->num_shards) + " " +
                                     std::to_string(plan_->num_tensors) + "\n"));
  }
  KU_RETURN_IF_ERROR(MoveIntoShards(path_, parts_, *plan_, max_shard_bytes_, bytes));
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
