// Engine::ReadTokenizer and Engine::ReadTemplate: find the tokenizer and the chat template of a
// configuration, and check that they match the model.
#include <filesystem>
#include <system_error>
#include <utility>

#include "kuiper/base/log.h"
#include "kuiper/base/text.h"
#include "kuiper/engine/engine.h"
#include "kuiper/model/file_weights.h"

namespace kuiper {
namespace {

StatusOr<std::unique_ptr<Tokenizer>> OpenTokenizer(const EngineConfig& config,
                                                   const ModelFiles& files) {
  if (!config.tokenizer_path.empty()) return Tokenizer::Load(config.tokenizer_path);
  if (!files.tokenizer_json.empty()) {
    return Tokenizer::FromJson(files.tokenizer_json, files.tokenizer_config_json, files.path);
  }
  return Tokenizer::Load(files.dir);
}

// Ids have other meanings in another tokenizer, and no other check would detect this.
void WarnOfOtherTokenizer(const EngineConfig& config, const ModelFiles& files) {
  constexpr size_t kMaxBytes = size_t{256} << 20;
  constexpr char kName[] = "tokenizer.json";
  std::error_code error;
  std::filesystem::path given = config.tokenizer_path;
  if (std::filesystem::is_directory(given, error)) given /= kName;
  const std::filesystem::path own = std::filesystem::path(files.dir) / kName;
  if (given.extension() != own.extension() || std::filesystem::equivalent(given, own, error)) {
    return;
  }
  StatusOr<std::string> mine = files.tokenizer_json;
  if (mine->empty()) mine = ReadTextFile(own.string(), kMaxBytes, StatusCode::kTokenizer);
  const auto other = ReadTextFile(given.string(), kMaxBytes, StatusCode::kTokenizer);
  if (!mine.ok() || !other.ok() || *mine == *other) return;
  LogWarning(given.string() + " is not the tokenizer that came with the model: where their ids " +
             "differ, answers mean nothing");
}

StatusOr<TemplateFiles> TemplateOf(const EngineConfig& config, const ModelFiles& files) {
  if (!config.tokenizer_path.empty()) {
    KU_ASSIGN_OR_RETURN(TemplateFiles found, ReadTemplateFiles(config.tokenizer_path));
    if (!found.source.empty()) return found;
  }
  if (files.chat_template.empty() && files.chat_template_json.empty() &&
      files.tokenizer_config_json.empty()) {
    return ReadTemplateFiles(files.dir);
  }
  return ParseTemplateFiles(files.chat_template, files.chat_template_json,
                            files.tokenizer_config_json, files.path);
}

// Returns null if there is no tokenizer and none is needed.
StatusOr<std::unique_ptr<Tokenizer>> LoadTokenizer(const EngineConfig& config,
                                                   const OpenedModel& model) {
  auto tokenizer = OpenTokenizer(config, model.files());
  if (!tokenizer.ok()) {
    if (!config.need_tokenizer && config.tokenizer_path.empty()) {
      return std::unique_ptr<Tokenizer>();
    }
    return tokenizer.status();
  }
  if (!config.tokenizer_path.empty()) WarnOfOtherTokenizer(config, model.files());
  const int vocab = model.config.decoder.vocab;
  const std::string mismatch = "tokenizer does not match the model: ";
  if (tokenizer.value()->max_id() >= vocab) {
    return Status(StatusCode::kTokenizer, mismatch + "tokenizer has ids up to " +
                                              std::to_string(tokenizer.value()->max_id()) +
                                              ", model vocabulary is " + std::to_string(vocab));
  }
  return tokenizer;
}

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> Engine::ReadTokenizer(const EngineConfig& config) {
  std::error_code ignored;
  if (!config.tokenizer_path.empty()) return Tokenizer::Load(config.tokenizer_path);
  // Weights are not needed: the path may hold only a tokenizer.
  if (std::filesystem::is_directory(config.model_path, ignored) ||
      config.model_path.ends_with(".json")) {
    return Tokenizer::Load(config.model_path);
  }
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<WeightSource> source,
                      FileWeights::Open(config.model_path));
  return OpenTokenizer(config, source->files());
}

StatusOr<std::unique_ptr<Tokenizer>> Engine::ReadTokenizer(const EngineConfig& config,
                                                           const OpenedModel& model) {
  return LoadTokenizer(config, model);
}

StatusOr<TemplateFiles> Engine::ReadTemplate(const EngineConfig& config) {
  std::error_code ignored;
  const std::string& path = config.model_path;
  if (std::filesystem::is_directory(path, ignored) || path.ends_with(".jinja") ||
      path.ends_with(".json")) {
    ModelFiles files;
    files.path = files.dir = path;
    return TemplateOf(config, files);
  }
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<WeightSource> source, FileWeights::Open(path));
  return TemplateOf(config, source->files());
}

}  // namespace kuiper
