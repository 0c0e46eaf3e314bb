// Engine and image settings whose values have names: the only table of these names, for the flags
// of programs and tools.
#pragma once

#include <optional>

#include "kuiper/base/dtype.h"
#include "kuiper/chat/variable.h"
#include "kuiper/engine/engine.h"
#include "kuiper/io/image/resize.h"

namespace kuiper {

NamedValues WeightTypeChoices(std::optional<DType>* type);
NamedValues KvFormatChoices(std::optional<KvFormat>* format);
NamedValues HeadTypeChoices(bool* int8_head);
NamedValues ActivationTypeChoices(bool* int8_activations);
NamedValues WeightStorageChoices(WeightStorage* storage);
NamedValues ScalingChoices(ScalingOrder* order);

}  // namespace kuiper
