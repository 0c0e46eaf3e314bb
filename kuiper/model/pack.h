// The packed container: an ordinary safetensors file whose metadata holds the model's texts, so
// that one file is a complete model. kuiper_pack writes it and FileWeights reads it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "kuiper/base/dtype.h"
#include "kuiper/base/status.h"

namespace kuiper {

// Metadata keys of the container.
inline constexpr const char* kConfigKey = "kuiper.config";
inline constexpr const char* kGenerationConfigKey = "kuiper.generation_config";
inline constexpr const char* kTokenizerKey = "kuiper.tokenizer";
inline constexpr const char* kTokenizerConfigKey = "kuiper.tokenizer_config";
inline constexpr const char* kChatTemplateKey = "kuiper.chat_template";
inline constexpr const char* kOldChatTemplateKey = "kuiper.chat_template_json";
inline constexpr const char* kProcessorKey = "kuiper.processor_config";
inline constexpr const char* kPreprocessorKey = "kuiper.preprocessor_config";
inline constexpr const char* kVideoPreprocessorKey = "kuiper.video_preprocessor_config";

struct PackOptions {
  // Convert the float tensors to this type, except the scales of packed matrices.
  std::optional<DType> dtype;
  std::function<void(int64_t bytes_done, int64_t bytes_total)> progress;
};

// Merges the model at `source` (anything FileWeights opens) into one file. Copies one tensor at a
// time; `out_path` appears complete or not at all. Returns kModel for errors of the source,
// kInternal for errors of the output.
Status PackModel(const std::string& source, const std::string& out_path,
                 const PackOptions& options);

}  // namespace kuiper
