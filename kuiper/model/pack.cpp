#include "kuiper/model/pack.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <vector>

#include "kuiper/base/atomic_file.h"
#include "kuiper/base/json.h"
#include "kuiper/base/text.h"
#include "kuiper/base/to_json.h"
#include "kuiper/model/config.h"
#include "kuiper/model/convert.h"
#include "kuiper/model/file_weights.h"

namespace kuiper {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxTokenizerBytes = size_t{64} << 20;

bool IsFloat(const SafetensorsType& type) {
  return type.dtype == DType::kF32 || type.dtype == DType::kF16 || type.dtype == DType::kBF16;
}

struct OutputTensor {
  const std::string* name;
  const FileWeights::Item* item;
  const SafetensorsType* type;
  int64_t count = 0;  // elements; 0 if they are copied unchanged
  int64_t bytes = 0;
};

// Sorts the tensors by type, widest first, which keeps each aligned to its element size, as the
// format's own writer does. Within a type, keeps the order of the source files, which is the
// loading order.
std::vector<OutputTensor> PlanTensors(const FileWeights& weights, std::optional<DType> dtype) {
  std::vector<OutputTensor> tensors;
  for (const auto& [name, item] : weights.items()) {
    OutputTensor t{&name, &item, item.entry->type};
    t.bytes = item.entry->end - item.entry->begin;
    if (dtype && IsFloat(*t.type) && t.type->dtype != dtype && !IsScales(name)) {
      t.count = t.bytes / static_cast<int64_t>(DTypeBytes(*t.type->dtype));
      t.type = FindSafetensorsType(SafetensorsTypeName(*dtype));
      t.bytes = t.count * static_cast<int64_t>(DTypeBytes(*dtype));
    }
    tensors.push_back(t);
  }
  std::stable_sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    if (a.type->bits != b.type->bits) return a.type->bits > b.type->bits;
    if (a.item->file != b.item->file) return a.item->file->path() < b.item->file->path();
    return a.item->entry->begin < b.item->entry->begin;
  });
  return tensors;
}

std::vector<SafetensorsOutput> Outputs(const std::vector<OutputTensor>& tensors) {
  std::vector<SafetensorsOutput> outputs;
  outputs.reserve(tensors.size());
  for (const OutputTensor& t : tensors) {
    outputs.push_back({*t.name, t.type, t.item->entry->shape, t.bytes});
  }
  return outputs;
}

// Returns the config with the actual type of the tensors; other keys are unchanged.
StatusOr<std::string> ConfigText(const std::string& original, std::optional<DType> dtype) {
  KU_RETURN_IF_ERROR(ParseModelConfig(original).status());
  if (!dtype) return original;
  KU_ASSIGN_OR_RETURN(const JsonNode config,
                      ParseJson(original, StatusCode::kModel, "config.json"));
  Json json = ToJson(config);
  const char* name = *dtype == DType::kF32   ? "float32"
                     : *dtype == DType::kF16 ? "float16"
                                             : "bfloat16";
  json[json.contains("dtype") ? "dtype" : "torch_dtype"] = name;
  return json.dump(2);
}

StatusOr<std::map<std::string, std::string>> Metadata(const ModelFiles& files,
                                                      std::optional<DType> dtype) {
  std::map<std::string, std::string> metadata = {{"format", "pt"}};
  KU_ASSIGN_OR_RETURN(metadata[kConfigKey], ConfigText(files.config_json, dtype));
  const auto add = [&](const char* key, const std::string& carried, const char* file) -> Status {
    std::string text = carried;
    const std::string path = files.dir + "/" + file;
    std::error_code error;
    if (text.empty() && file[0] != '\0' && std::filesystem::exists(path, error)) {
      KU_ASSIGN_OR_RETURN(text, ReadTextFile(path, kMaxTokenizerBytes, StatusCode::kModel));
    }
    if (text.empty()) return OkStatus();
    if (key == kChatTemplateKey) {
      metadata[key] = std::move(text);
      return OkStatus();
    }
    KU_RETURN_IF_ERROR(JsonEvents().Read(text, StatusCode::kModel, file[0] != '\0' ? path : key));
    metadata[key] = std::move(text);
    return OkStatus();
  };
  KU_RETURN_IF_ERROR(add(kGenerationConfigKey, files.generation_config_json, ""));
  KU_RETURN_IF_ERROR(add(kTokenizerKey, files.tokenizer_json, "tokenizer.json"));
  KU_RETURN_IF_ERROR(
      add(kTokenizerConfigKey, files.tokenizer_config_json, "tokenizer_config.json"));
  KU_RETURN_IF_ERROR(add(kChatTemplateKey, files.chat_template, "chat_template.jinja"));
  KU_RETURN_IF_ERROR(add(kOldChatTemplateKey, files.chat_template_json, "chat_template.json"));
  KU_RETURN_IF_ERROR(add(kProcessorKey, files.processor_json, "processor_config.json"));
  KU_RETURN_IF_ERROR(add(kPreprocessorKey, files.preprocessor_json, "preprocessor_config.json"));
  KU_RETURN_IF_ERROR(
      add(kVideoPreprocessorKey, files.video_preprocessor_json, "video_preprocessor_config.json"));
  return metadata;
}

Status WriteTensor(FileWeights& weights, const OutputTensor& t, AtomicFile& out) {
  const std::string_view bytes = t.item->file->Bytes(*t.item->entry);
  const auto write = [&out](std::string_view piece) {
    return out.Write(piece.data(), piece.size());
  };
  constexpr size_t kUnitBytes = 8;  // bytes of the widest element type
  if (t.count == 0) return ForEachPiece(weights, bytes, kUnitBytes, write);
  return ForEachConverted(weights, bytes, *t.item->entry->type->dtype, *t.type->dtype,
                          "tensor " + Quoted(*t.name), write);
}

}  // namespace

Status PackModel(const std::string& source, const std::string& out_path,
                 const PackOptions& options) {
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<FileWeights> weights, FileWeights::Open(source));
  KU_ASSIGN_OR_RETURN(const auto metadata, Metadata(weights->files(), options.dtype));
  const std::vector<OutputTensor> tensors = PlanTensors(*weights, options.dtype);
  KU_ASSIGN_OR_RETURN(const std::string head, SafetensorsHead(Outputs(tensors), metadata, source));
  AtomicFile out(out_path);
  KU_RETURN_IF_ERROR(out.status());
  KU_RETURN_IF_ERROR(out.Write(head.data(), head.size()));
  int64_t total = 0;
  for (const OutputTensor& t : tensors) total += t.bytes;
  int64_t done = 0;
  for (const OutputTensor& t : tensors) {
    KU_RETURN_IF_ERROR(WriteTensor(*weights, t, out));
    done += t.bytes;
    if (options.progress) options.progress(done, total);
  }
  return out.Commit();
}

}  // namespace kuiper
