// Variables of the configuration of engines and pictures whose values have names: the one table of
// them, for the flags of the programs and of the tools.
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
