// The packed container: an ordinary safetensors file whose metadata carries the model's texts, so
// that one file is a whole model. Written by kuiper_pack, read by FileWeights.
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
  std::optional<DType> dtype;  // convert the float tensors but the scales of packed matrices
  std::function<void(int64_t bytes_done, int64_t bytes_total)> progress;
};

// Merges the model at `source` (anything FileWeights opens) into one file. Streams tensor by
// tensor; `out_path` appears complete or not at all. kModel for the source, kInternal for the
// output.
Status PackModel(const std::string& source, const std::string& out_path,
                 const PackOptions& options);

}  // namespace kuiper
