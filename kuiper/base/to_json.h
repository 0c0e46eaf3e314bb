// Copies what ParseJson has read into JSON that is written.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "kuiper/base/json.h"

namespace kuiper {

// Keeps the order of keys. An integer beyond 64 bits becomes a double.
nlohmann::ordered_json ToJson(const JsonNode& node);

}  // namespace kuiper
