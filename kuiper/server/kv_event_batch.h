// Events of the prefix cache as vLLM tells them, so that what follows its engines follows this one:
// a batch is MessagePack of [seconds, [event, ...], rank of data parallelism].
#pragma once

#include <span>
#include <string>

#include "kuiper/kv/prefix_event.h"

namespace kuiper {

// How an event is told: a map of named fields with its kind under "type" (vLLM from 0.23 on), or an
// array of the kind and the fields in order (before).
enum class KvEventForm { kMap, kArray };

// `seconds` since 1970. Blocks that follow each other become one event.
std::string KvEventBatch(std::span<const PrefixEvent> events, double seconds, KvEventForm form);

}  // namespace kuiper
