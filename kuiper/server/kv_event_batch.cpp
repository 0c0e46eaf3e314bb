#include "kuiper/server/kv_event_batch.h"

#include <nlohmann/json.hpp>
#include <utility>

namespace kuiper {
namespace {

using Json = nlohmann::ordered_json;
using Kind = PrefixEvent::Kind;

// The name for the memory that the engine computes with; routers use other names for slower tiers.
constexpr const char* kMedium = "GPU";

// Returns how many leading events can be merged into one.
size_t Run(std::span<const PrefixEvent> events) {
  size_t count = 1;
  for (; count < events.size() && events[count].kind == events[0].kind; ++count) {
    if (events[0].kind == Kind::kStored && events[count].parent != events[count - 1].hash) break;
  }
  return count;
}

// Returns the merged event with named fields, the kind first.
Json EventJson(std::span<const PrefixEvent> run) {
  if (run[0].kind == Kind::kCleared) return {{"type", "AllBlocksCleared"}};
  Json hashes = Json::array();
  for (const PrefixEvent& event : run) hashes.push_back(event.hash);
  if (run[0].kind == Kind::kRemoved) {
    return {{"type", "BlockRemoved"}, {"block_hashes", std::move(hashes)}, {"medium", kMedium}};
  }
  Json tokens = Json::array();
  for (const PrefixEvent& event : run) {
    for (const int32_t token : event.tokens) tokens.push_back(token);
  }
  return {{"type", "BlockStored"},
          {"block_hashes", std::move(hashes)},
          {"parent_block_hash", run[0].parent == 0 ? Json() : Json(run[0].parent)},
          {"token_ids", std::move(tokens)},
          {"block_size", run[0].tokens.size()},
          {"lora_id", nullptr},
          {"medium", kMedium},
          {"lora_name", nullptr}};
}

Json WithoutNames(const Json& event) {
  Json fields = Json::array();
  for (const auto& [name, value] : event.items()) fields.push_back(value);
  return fields;
}

}  // namespace

std::string KvEventBatch(std::span<const PrefixEvent> events, double seconds, KvEventFormat form) {
  Json list = Json::array();
  while (!events.empty()) {
    const size_t count = Run(events);
    Json event = EventJson(events.first(count));
    list.push_back(form == KvEventFormat::kMap ? std::move(event) : WithoutNames(event));
    events = events.subspan(count);
  }
  std::string bytes;
  Json::to_msgpack(Json::array({seconds, std::move(list), 0}), bytes);
  return bytes;
}

}  // namespace kuiper
