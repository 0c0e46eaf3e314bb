#include "kuiper/model/file_weights.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>

#include "kuiper/base/hash.h"
#include "kuiper/base/json.h"
#include "kuiper/base/text.h"
#include "kuiper/model/manifest.h"
#include "kuiper/model/pack.h"

namespace kuiper {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxIndexBytes = size_t{64} << 20;
constexpr const char* kIndexName = "model.safetensors.index.json";

size_t PageBytes() {
  static const auto bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

// Extends the bytes to the beginning of their first memory page.
std::span<char> PagesOf(const void* data, size_t bytes) {
  const size_t ahead = reinterpret_cast<uintptr_t>(data) % PageBytes();
  return {static_cast<char*>(const_cast<void*>(data)) - ahead, ahead + bytes};
}

bool Exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string InFolder(const std::string& dir, const std::string& name) {
  return dir + "/" + name;
}

// True for "model-00001-of-00004.safetensors": a name in the same folder, never a path out of it.
bool IsPlainFileName(const std::string& name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos;
}

Status ReadOptional(const std::string& path, std::string* text) {
  if (!Exists(path)) return OkStatus();
  KU_ASSIGN_OR_RETURN(*text, ReadTextFile(path, kMaxConfigBytes, StatusCode::kModel));
  return OkStatus();
}

// Returns a hint for a folder without safetensors files; it names a GGUF file if there is one.
std::string WeightsHint(const std::string& dir) {
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() != ".gguf") continue;
    return "its " + it->path().filename().string() +
           " is a GGUF file, which is not read: use the safetensors version of the model";
  }
  return Exists(dir + "/pytorch_model.bin")
             ? "pytorch_model.bin must be converted to safetensors first"
             : "";
}

Status ReadConfigs(const std::string& dir, ModelFiles* files) {
  std::error_code error;
  if (!fs::exists(dir + "/config.json", error)) {
    return Status(StatusCode::kModel,
                  error ? "cannot look into " + dir + ": " + error.message()
                        : dir +
                              " has no config.json (expected a Hugging Face model directory or a "
                              ".bin packed by kuiper_pack)",
                  WeightsHint(dir));
  }
  KU_RETURN_IF_ERROR(ReadOptional(dir + "/config.json", &files->config_json));
  return ReadOptional(dir + "/generation_config.json", &files->generation_config_json);
}

}  // namespace

StatusOr<std::unique_ptr<FileWeights>> FileWeights::Open(const std::string& path) {
  std::unique_ptr<FileWeights> weights(new FileWeights());
  weights->files_.path = path;
  std::error_code error;
  if (fs::is_directory(path, error)) {
    KU_RETURN_IF_ERROR(weights->OpenDirectory(path));
  } else {
    KU_RETURN_IF_ERROR(weights->OpenSingleFile(path));
  }
  return weights;
}

Status FileWeights::OpenDirectory(const std::string& path) {
  const std::string dir =
      path.size() > 1 && path.back() == '/' ? path.substr(0, path.size() - 1) : path;
  files_.dir = dir;
  KU_RETURN_IF_ERROR(ReadConfigs(dir, &files_));
  if (Exists(dir + "/model.safetensors")) return AddFile(dir + "/model.safetensors");
  if (Exists(dir + "/" + kIndexName)) return OpenShards(dir);
  std::vector<std::string> candidates;
  std::error_code error;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".safetensors") candidates.push_back(it->path().string());
  }
  if (candidates.size() == 1) return AddFile(candidates[0]);
  return Status(StatusCode::kModel,
                dir + " has no model.safetensors and no " + std::string(kIndexName),
                WeightsHint(dir));
}

Status FileWeights::OpenShards(const std::string& dir) {
  KU_ASSIGN_OR_RETURN(const std::string text,
                      ReadTextFile(dir + "/" + kIndexName, kMaxIndexBytes, StatusCode::kModel));
  KU_ASSIGN_OR_RETURN(const JsonNode index,
                      ParseJson(text, StatusCode::kModel, dir + "/" + kIndexName));
  const std::string where = dir + "/" + kIndexName + ": ";
  const JsonNode* map = index.Find("weight_map");
  if (map == nullptr || map->keys.empty()) {
    return Status(StatusCode::kModel, where + "weight_map is missing");
  }
  std::set<std::string> shards;
  for (size_t i = 0; i < map->keys.size(); ++i) {
    const JsonNode& shard = map->items[i];
    if (!shard.IsString() || !IsPlainFileName(shard.text)) {
      return Status(StatusCode::kModel, where + "the file of " + Quoted(map->keys[i]) +
                                            " is not a plain file name: " + QuotedJson(shard));
    }
    shards.insert(shard.text);
  }
  for (const std::string& shard : shards) {
    if (!Exists(InFolder(dir, shard))) {
      return Status(
          StatusCode::kModel,
          "model file not found: " + InFolder(dir, shard) + " (listed in " + kIndexName + ")",
          "download or copy all shards of the model");
    }
    KU_RETURN_IF_ERROR(AddFile(InFolder(dir, shard)));
  }
  // Old exports list tensors that no network needs, so a missing one is not an error here. Which
  // file holds a tensor is taken from the files, not from the index.
  for (size_t i = 0; i < map->keys.size(); ++i) {
    if (!items_.contains(map->keys[i])) absent_.emplace(map->keys[i], map->items[i].text);
  }
  return OkStatus();
}

Status FileWeights::OpenSingleFile(const std::string& path) {
  KU_RETURN_IF_ERROR(AddFile(path));
  const fs::path parent = fs::path(path).parent_path();
  files_.dir = parent.empty() ? "." : parent.string();
  const auto& metadata = maps_[0]->header().metadata;
  const auto text = [&metadata](const char* key) {
    const auto it = metadata.find(key);
    return it == metadata.end() ? std::string() : it->second;
  };
  files_.config_json = text(kConfigKey);
  if (files_.config_json.empty()) return ReadConfigs(files_.dir, &files_);
  files_.generation_config_json = text(kGenerationConfigKey);
  if (std::max(files_.config_json.size(), files_.generation_config_json.size()) > kMaxConfigBytes) {
    return Status(StatusCode::kModel, path + ": its configuration is larger than " +
                                          std::to_string(kMaxConfigBytes >> 20) + " MB");
  }
  files_.tokenizer_json = text(kTokenizerKey);
  files_.tokenizer_config_json = text(kTokenizerConfigKey);
  files_.chat_template = text(kChatTemplateKey);
  files_.chat_template_json = text(kOldChatTemplateKey);
  files_.processor_json = text(kProcessorKey);
  files_.preprocessor_json = text(kPreprocessorKey);
  files_.video_preprocessor_json = text(kVideoPreprocessorKey);
  return OkStatus();
}

Status FileWeights::AddFile(const std::string& path) {
  KU_ASSIGN_OR_RETURN(std::unique_ptr<SafetensorsFile> file, SafetensorsFile::Open(path));
  for (const auto& [name, entry] : file->header().tensors) {
    if (!items_.emplace(name, Item{file.get(), &entry}).second) {
      return Status(StatusCode::kModel, path + ": tensor " + Quoted(name) + " is also in " +
                                            items_.at(name).file->path());
    }
  }
  maps_.push_back(std::move(file));
  return OkStatus();
}

StatusOr<Tensor> FileWeights::Get(const Weight& weight) {
  const std::vector<int64_t>& shape = weight.shape;
  const std::vector<int64_t>& stored = weight.stored_shape.empty() ? shape : weight.stored_shape;
  KU_CHECK(shape.size() == 1 || shape.size() == 2);
  auto it = items_.find(weight.name);
  if (it == items_.end() && !weight.alias.empty()) it = items_.find(weight.alias);
  if (it == items_.end()) {
    return Status(StatusCode::kModel,
                  files_.path + ": tensor " + Quoted(weight.name) + " is missing",
                  weight.if_missing);
  }
  const std::string& name = it->first;
  const auto& [file, entry] = it->second;
  if (entry->shape != stored) {
    return Status(StatusCode::kModel, file->path() + ": tensor " + Quoted(name) + " has shape " +
                                          ShapeText(entry->shape) + ", config.json asks for " +
                                          ShapeText(stored));
  }
  const auto dtype = entry->type->dtype;
  if (dtype != DType::kF32 && dtype != DType::kF16 && dtype != DType::kBF16) {
    return Status(StatusCode::kModel, file->path() + ": tensor " + Quoted(name) + " has type " +
                                          entry->type->name +
                                          ", which is not supported (supported: F32, F16, BF16)");
  }
  used_.insert({weight.name, weight.alias});
  // The mapping is read-only; kernels never write to weights.
  char* data = const_cast<char*>(file->Bytes(*entry).data());
  return shape.size() == 1 ? Tensor::Dense(data, *dtype, {shape[0]})
                           : Tensor::Dense(data, *dtype, {shape[0], shape[1]});
}

bool FileWeights::AreEqual(const Item& a, const Item& b) {
  if (a.entry->type != b.entry->type || a.entry->shape != b.entry->shape) return false;
  const std::string_view first = a.file->Bytes(*a.entry), second = b.file->Bytes(*b.entry);
  constexpr size_t kPiece = size_t{8} << 20;
  bool equal = true;
  for (size_t at = 0; equal && at < first.size(); at += kPiece) {
    const std::string_view x = first.substr(at, kPiece), y = second.substr(at, kPiece);
    Read(x.data(), x.size());
    Read(y.data(), y.size());
    equal = x == y;
    a.file->Drop(x.data(), x.size(), /*cached_too=*/false);
    b.file->Drop(y.data(), y.size(), /*cached_too=*/false);
  }
  return equal;
}

std::optional<StoredTensor> FileWeights::Find(const std::string& name) const {
  const auto it = items_.find(name);
  if (it == items_.end()) return std::nullopt;
  const auto& [file, entry] = it->second;
  return StoredTensor{.file = file->path(),
                      .name = name,
                      .type = entry->type,
                      .shape = entry->shape,
                      .bytes = file->Bytes(*entry)};
}

StatusOr<std::optional<PackedMatrix>> FileWeights::GetPacked(const Weight& weight) {
  std::vector<std::string> asked;
  StatusOr<std::optional<PackedMatrix>> packed =
      FindPacked(quantization_, weight, [&](const std::string& name) {
        asked.push_back(name);
        return Find(name);
      });
  if (packed.ok() && packed->has_value()) used_.insert(asked.begin(), asked.end());
  return packed;
}

std::vector<std::string> FileWeights::Unused() const {
  std::vector<std::string> names;
  for (const auto& [name, item] : items_) {
    if (!used_.contains(name)) names.push_back(name);
  }
  return names;
}

// Only a hint: a failure costs speed, nothing else.
void FileWeights::WillNeed(const void* data, size_t bytes) {
  const std::span<char> pages = PagesOf(data, bytes);
  (void)madvise(pages.data(), pages.size(), MADV_WILLNEED);
}

void FileWeights::Read(const void* data, size_t bytes) {
  const std::span<char> pages = PagesOf(data, bytes);
#ifdef MADV_POPULATE_READ  // Linux 5.14: one call instead of a page fault for every few pages
  if (madvise(pages.data(), pages.size(), MADV_POPULATE_READ) == 0) return;
#endif
  for (size_t byte = 0; byte < pages.size(); byte += PageBytes()) {
    (void)*static_cast<const volatile char*>(pages.data() + byte);
  }
}

void FileWeights::DontNeed(const void* data, size_t bytes) {
  for (const auto& file : maps_) {
    if (file->Contains(data)) return file->Drop(data, bytes, !keeps_cached_);
  }
}

uint64_t FileWeights::Digest() const {
  constexpr size_t kSample = 64;
  uint64_t hash = kFnv1a64Init;
  for (const auto& [name, item] : items_) {
    const std::string_view bytes = item.file->Bytes(*item.entry);
    hash = Fnv1a64OfText(name + " " + item.entry->type->name + " " + ShapeText(item.entry->shape),
                         hash);
    hash = Fnv1a64OfText(bytes.substr(0, kSample), hash);
    hash = Fnv1a64OfText(bytes.substr(bytes.size() / 2, kSample), hash);
  }
  return hash;
}

std::string FileWeights::ChangedFile() const {
  const auto changed =
      std::find_if(maps_.begin(), maps_.end(), [](const auto& file) { return file->HasChanged(); });
  return changed == maps_.end() ? "" : (*changed)->path();
}

int64_t FileWeights::file_bytes() const {
  int64_t total = 0;
  for (const auto& map : maps_) total += map->file_bytes();
  return total;
}

}  // namespace kuiper
