#include "kuiper/model/architecture.h"

namespace kuiper {
namespace {

constexpr Architecture kArchitectures[] = {
    {"Qwen2ForCausalLM", "qwen2", ModelFamily::kQwen2, true, false, false, false, 0, "model.",
     ListQwenWeights},
    {"Qwen3ForCausalLM", "qwen3", ModelFamily::kQwen3, false, true, false, true, 128, "model.",
     ListQwenWeights},
    {"LlamaForCausalLM", "llama", ModelFamily::kLlama, false, true, true, false, 0, "model.",
     ListQwenWeights},
    {"Qwen3VLForConditionalGeneration", "qwen3_vl", ModelFamily::kQwen3VL, false, true, false, true,
     128, "", nullptr},
};

}  // namespace

std::span<const Architecture> Architectures() {
  return kArchitectures;
}

}  // namespace kuiper
