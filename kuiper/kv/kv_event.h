// What happens to the pages of a paged KV cache: one event per change, in the order in which the
// changes are decided. An observer can follow every block table and the free pages (page_map.h does
// this). The engine's configuration names the observer; without one no events are sent. Host only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace kuiper {

// The owner of a page reference: a sequence, which is one answer to a request or a beam. Both are 0
// for the prefix cache and for a computation of logits without a request.
struct PageHolder {
  int64_t request = 0;
  int64_t sequence = 0;  // never used for another sequence

  bool operator==(const PageHolder&) const = default;
};

struct KvEvent {
  enum class Kind : uint8_t {
    kAllocate,  // a free page becomes page `index` of the holder's table
    kShare,     // the holder's page `index` becomes a page that others hold, or the cache keeps it
    kCopy,      // the first num_tokens tokens of the page `from` are copied to the holder's page
    kRelease,   // the holder releases a page that others still hold
    kFree,      // the holder releases a page that has no other holder
    kEvict,     // the prefix cache releases a page that has no other holder
    kSwapOut,   // the page is copied to host_page, before the holder releases it
    kSwapIn,    // host_page is copied back to a page that the holder has allocated
    kSwapFree,  // the holder releases host_page
  };
  Kind kind = Kind::kAllocate;
  PageHolder holder;
  int32_t index = -1;  // in the holder's block table, from 0; -1: the prefix cache, which has none
  int32_t page = 0;    // in the pool, from 1; 0: the event has none
  int32_t from = 0;
  int32_t num_tokens = 0;
  int32_t host_page = 0;
  int32_t num_holders = 0;  // holders of the page after the event
  int32_t num_free = 0;     // free pages of the pool, after the event
};

// Called by the thread that calls the engine, before that call returns. Must not call the engine.
using KvObserver = std::function<void(const KvEvent&)>;

// "allocate", "swap_out".
const char* KvEventName(KvEvent::Kind kind);
// A line of JSON with its newline: event, request, sequence, logical, page, fields of the kind
// (from, tokens, host), holders and free. Numbers that the event does not have are null.
std::string KvEventJson(const KvEvent& event);

// Writes events as text for people. Equal events of consecutive pages become one line, "request 1,
// sequence 1: allocate [0..3] block 5..8, 12 free".
class KvEventLines {
 public:
  explicit KvEventLines(std::function<void(const std::string&)> sink) : sink_(std::move(sink)) {}

  void Add(const KvEvent& event);
  // Writes the line that later events could still extend.
  void Flush();

 private:
  std::function<void(const std::string&)> sink_;
  KvEvent first_;
  KvEvent last_;
  int count_ = 0;  // events from first_ to last_
};

}  // namespace kuiper
