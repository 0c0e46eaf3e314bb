#include "kuiper/io/tokenizer.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "kuiper/base/hash.h"
#include "kuiper/base/text.h"
#include "kuiper/io/bpe_tokenizer.h"
#include "kuiper/io/spm_tokenizer.h"
#include "kuiper/io/tokenizer_spec.h"

namespace kuiper {
namespace {

namespace fs = std::filesystem;

// Far above any real tokenizer (11 MB); a path to a model file by mistake is not read.
constexpr size_t kMaxFileBytes = size_t{1} << 28;

Status FileError(const std::string& message, const std::string& hint = "") {
  return Status(StatusCode::kTokenizer, message, hint);
}

StatusOr<std::string> ReadFile(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) {
    return error ? FileError("cannot read " + path.string() + ": " + error.message())
                 : FileError("tokenizer file not found: " + path.string());
  }
  return ReadTextFile(path.string(), kMaxFileBytes, StatusCode::kTokenizer);
}

// Returns tokenizer.json, or if there is none the only *.model.
StatusOr<fs::path> FindInDirectory(const fs::path& dir) {
  std::error_code error;
  if (fs::exists(dir / "tokenizer.json", error)) return dir / "tokenizer.json";
  fs::path found;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() != ".model") continue;
    if (!found.empty()) {
      return FileError(dir.string() + " has several .model files: name the tokenizer");
    }
    found = it->path();
  }
  if (error) return FileError("cannot read " + dir.string() + ": " + error.message());
  if (found.empty()) {
    return FileError("tokenizer file not found: " + (dir / "tokenizer.json").string(),
                     "name a tokenizer.json, or the directory that has it, besides the model");
  }
  return found;
}

}  // namespace

StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::Load(const std::string& path) {
  fs::path file = path;
  std::error_code error;
  if (fs::is_directory(file, error)) {
    KU_ASSIGN_OR_RETURN(file, FindInDirectory(path));
  }
  KU_ASSIGN_OR_RETURN(const std::string text, ReadFile(file));
  std::string config;
  const fs::path config_path = file.parent_path() / "tokenizer_config.json";
  if (fs::exists(config_path, error)) {
    KU_ASSIGN_OR_RETURN(config, ReadFile(config_path));
  }
  if (file.extension() == ".model") return CreateSpmTokenizer(text, config, file.string());
  return FromJson(text, config, file.string());
}

StatusOr<std::unique_ptr<Tokenizer>> Tokenizer::FromJson(std::string_view json,
                                                         std::string_view config_json,
                                                         const std::string& name) {
  KU_ASSIGN_OR_RETURN(TokenizerSpec spec, ParseTokenizerSpec(json, config_json, name));
  return BpeTokenizer::Create(std::move(spec), name);
}

uint64_t Tokenizer::Hash() const {
  uint64_t hash = kFnv1a64Init;
  for (int32_t id = 0; id <= max_id(); ++id) {
    hash = Fnv1a64OfText(Bytes(id), Fnv1a64Byte(IsSpecial(id) ? 1 : 0, hash));
  }
  return hash;
}

std::vector<int32_t> Tokenizer::Encode(std::string_view text) const {
  const TextPiece piece{text, false};
  return EncodePieces({&piece, 1});
}

std::vector<int32_t> Tokenizer::EncodeWithSpecials(std::string_view text) const {
  const TextPiece piece{text, true};
  return EncodePieces({&piece, 1});
}

}  // namespace kuiper
