// What becomes of the pages of a paged KV cache, told one by one in the order in which it is
// decided: who watches can follow every block table and the free pages (page_map.h does). The
// engine's configuration names who watches; without one nothing is told. Host only.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace kuiper {

// Whose pages: a sequence, which is one answer to a request or a beam. Without a number: the prefix
// cache, or what computes logits without a request.
struct PageHolder {
  int64_t request = 0;
  int64_t sequence = 0;  // a number that no other sequence ever has

  bool operator==(const PageHolder&) const = default;
};

struct KvEvent {
  enum class Kind : uint8_t {
    kAllocate,  // a free page becomes page `index` of the holder's table
    kShare,  // a page that others hold becomes page `index` of the holder's; or the cache keeps it
    kCopy,   // the first num_tokens tokens of the page `from` are copied to the holder's page
    kRelease,   // the holder gives up a page that others go on holding
    kFree,      // the same, and nobody else holds it
    kEvict,     // the prefix cache gives up a page that nobody else holds
    kSwapOut,   // the page is copied to host_page, before the holder gives it up
    kSwapIn,    // and back, to a page that the holder was given
    kSwapFree,  // the holder gives up host_page
  };
  Kind kind = Kind::kAllocate;
  PageHolder holder;
  int32_t index = -1;  // in the holder's block table, from 0; -1: the prefix cache, which has none
  int32_t page = 0;    // of the pool, from 1; 0: the event has none
  int32_t from = 0;
  int32_t num_tokens = 0;
  int32_t host_page = 0;
  int32_t num_holders = 0;  // of the page, from here on
  int32_t num_free = 0;     // pages of the pool, from here on
};

// Called by whoever calls the engine, before the engine's call returns; must not call the engine.
using KvObserver = std::function<void(const KvEvent&)>;

// "allocate", "swap_out".
const char* KvEventName(KvEvent::Kind kind);
// A line of JSON with its newline: event, request, sequence, logical, page, what the kind has
// besides (from, tokens, host), holders and free. Numbers that the event does not have are null.
std::string KvEventJson(const KvEvent& event);

// The same for people: what happens to pages in a row is one line, "request 1, sequence 1:
// allocate [0..3] block 5..8, 12 free".
class KvEventLines {
 public:
  explicit KvEventLines(std::function<void(const std::string&)> sink) : sink_(std::move(sink)) {}

  void Add(const KvEvent& event);
  // Writes the line that may still grow.
  void Flush();

 private:
  std::function<void(const std::string&)> sink_;
  KvEvent first_;
  KvEvent last_;
  int count_ = 0;  // events from first_ to last_
};

}  // namespace kuiper
