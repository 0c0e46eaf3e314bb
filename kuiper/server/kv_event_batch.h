// Serializes prefix cache events in vLLM's format, so that routers for vLLM work with this engine.
// A batch is MessagePack of [seconds, [event, ...], data parallel rank].
#pragma once

#include <span>
#include <string>

#include "kuiper/kv/prefix_event.h"

namespace kuiper {

// Format of an event. kMap: named fields, the kind under "type" (vLLM from 0.23 on). kArray: the
// kind and the fields in order (older versions).
enum class KvEventFormat { kMap, kArray };

// `seconds` since 1970. Consecutive blocks become one event.
std::string KvEventBatch(std::span<const PrefixEvent> events, double seconds, KvEventFormat form);

}  // namespace kuiper
