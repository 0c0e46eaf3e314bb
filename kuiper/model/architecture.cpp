#include "kuiper/model/architecture.h"

namespace kuiper {
namespace {

constexpr Architecture kArchitectures[] = {
    {"Qwen2ForCausalLM", "qwen2", ModelFamily::kQwen2, true, false, false, false, 0,
     SlidingLayers::kByLayer, "model.", false, ListQwenWeights},
    {"Qwen3ForCausalLM", "qwen3", ModelFamily::kQwen3, false, true, false, true, 128,
     SlidingLayers::kByLayer, "model.", false, ListQwenWeights},
    {"LlamaForCausalLM", "llama", ModelFamily::kLlama, false, true, true, false, 0,
     SlidingLayers::kNone, "model.", false, ListQwenWeights},
    {"MistralForCausalLM", "mistral", ModelFamily::kLlama, false, false, false, false, 0,
     SlidingLayers::kAll, "model.", false, ListQwenWeights},
    {"Qwen3VLForConditionalGeneration", "qwen3_vl", ModelFamily::kQwen3VL, false, true, false, true,
     128, SlidingLayers::kNone, "model.language_model.", true, ListQwenWeights},
};

}  // namespace

std::span<const Architecture> Architectures() {
  return kArchitectures;
}

}  // namespace kuiper
