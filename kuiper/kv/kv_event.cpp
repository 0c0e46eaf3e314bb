#include "kuiper/kv/kv_event.h"

namespace kuiper {
namespace {

constexpr const char* kNames[] = {"allocate", "share",    "copy",    "release",  "free",
                                  "evict",    "swap_out", "swap_in", "swap_free"};

// "5", or "5..8".
std::string Run(int32_t first, int32_t last) {
  return std::to_string(first) + (first == last ? "" : ".." + std::to_string(last));
}

// True if `next` is the same event as `event` for the following page.
bool Continues(const KvEvent& event, const KvEvent& next) {
  const auto follows = [](int32_t a, int32_t b) { return b == (a > 0 ? a + 1 : a); };
  return event.kind == next.kind && event.kind != KvEvent::Kind::kCopy &&
         event.holder == next.holder && follows(event.page, next.page) &&
         follows(event.host_page, next.host_page) &&
         (event.index < 0 ? next.index < 0 : next.index == event.index + 1);
}

}  // namespace

const char* KvEventName(KvEvent::Kind kind) {
  return kNames[static_cast<int>(kind)];
}

std::string KvEventJson(const KvEvent& event) {
  const auto field = [](const char* name, bool has, int64_t value) {
    return std::string(",\"") + name + "\":" + (has ? std::to_string(value) : "null");
  };
  const bool has_table = event.index >= 0;
  const bool is_copy = event.kind == KvEvent::Kind::kCopy;
  std::string text = std::string("{\"event\":\"") + KvEventName(event.kind) + "\"";
  text += field("request", event.holder.request > 0, event.holder.request);
  text += field("sequence", event.holder.sequence > 0, event.holder.sequence);
  text += field("logical", has_table, event.index);
  text += field("page", event.page > 0, event.page);
  if (is_copy) text += field("from", true, event.from) + field("tokens", true, event.num_tokens);
  if (event.host_page > 0) text += field("host", true, event.host_page);
  text += field("holders", event.page > 0, event.num_holders);
  return text + field("free", true, event.num_free) + "}\n";
}

void KvEventLines::Add(const KvEvent& event) {
  if (count_ > 0 && !Continues(last_, event)) Flush();
  if (count_++ == 0) first_ = event;
  last_ = event;
}

void KvEventLines::Flush() {
  if (count_ == 0) return;
  std::string text = first_.holder.sequence == 0
                         ? "prefix cache"
                         : "request " + std::to_string(first_.holder.request) + ", sequence " +
                               std::to_string(first_.holder.sequence);
  text += std::string(": ") + KvEventName(first_.kind);
  if (first_.index >= 0) text += " [" + Run(first_.index, last_.index) + "]";
  if (first_.page > 0) text += " block " + Run(first_.page, last_.page);
  if (first_.kind == KvEvent::Kind::kCopy) {
    text += " from " + std::to_string(first_.from) + ", " + std::to_string(first_.num_tokens) +
            " tokens";
  }
  if (first_.host_page > 0) text += " host block " + Run(first_.host_page, last_.host_page);
  sink_(text + ", " + std::to_string(last_.num_free) + " free");
  count_ = 0;
}

}  // namespace kuiper
