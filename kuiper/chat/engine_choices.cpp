#include "kuiper/chat/engine_choices.h"

namespace kuiper {

NamedValues WeightTypeChoices(std::optional<DType>* type) {
  return OneOf(
      type, {{"auto", {}}, {"fp16", DType::kF16}, {"bf16", DType::kBF16}, {"fp32", DType::kF32}});
}

NamedValues KvFormatChoices(std::optional<KvFormat>* format) {
  return OneOf(format, {{"auto", {}},
                        {"fp16", KvFormat::FromName("fp16")},
                        {"bf16", KvFormat::FromName("bf16")},
                        {"fp32", KvFormat::FromName("fp32")},
                        {"int8", KvFormat::FromName("int8")},
                        {"fp8", KvFormat::FromName("fp8_e4m3")},
                        {"fp8_e4m3", KvFormat::FromName("fp8_e4m3")},
                        {"fp8_e5m2", KvFormat::FromName("fp8_e5m2")}});
}

NamedValues HeadTypeChoices(bool* int8_head) {
  return OneOf(int8_head, {{"auto", false}, {"int8", true}});
}

NamedValues ActivationTypeChoices(bool* int8_activations) {
  return OneOf(int8_activations, {{"auto", false}, {"int8", true}});
}

NamedValues WeightStorageChoices(WeightStorage* storage) {
  return OneOf(storage, {{"auto", WeightStorage::kAuto},
                         {"mapped", WeightStorage::kMapped},
                         {"copied", WeightStorage::kCopied}});
}

NamedValues ScalingChoices(ScalingOrder* order) {
  return OneOf(order,
               {{"pillow-13", ScalingOrder::kPillow13}, {"pillow-12", ScalingOrder::kPillow12}});
}

}  // namespace kuiper
