// How a server is run. Plain values; the programs fill them in.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "kuiper/server/access.h"
#include "kuiper/server/http_server.h"
#include "kuiper/server/reasoning_field.h"

namespace kuiper {

// A service manager that wants to know how the server is.
struct ServiceSettings {
  std::string notify_socket;              // path or "@name"; "": there is none
  std::chrono::microseconds watchdog{0};  // it ends who is silent for so long; 0: never
};

struct ServerSettings {
  HttpSettings http;
  AccessRules access;
  int max_queue = 4096;                           // answers that may wait besides those that run
  size_t max_queue_bytes = size_t{256} << 20;     // of their bodies and prompts
  size_t max_picture_bytes = size_t{512} << 20;   // of pixels of requests that run and wait
  int64_t max_request_pixels = int64_t{1} << 28;  // of the pictures of a request, as sent
  // The pixels that are decoded at one time. While a picture is decoded and scaled, each of its
  // pixels takes 3 to 9 bytes.
  int64_t max_decoding_pixels = int64_t{1} << 26;
  std::chrono::milliseconds request_timeout{0};  // 0: none
  std::chrono::milliseconds drain_timeout{30000};
  std::chrono::milliseconds ping_interval{15000};  // of streams that have nothing to say
  std::chrono::milliseconds release_after{0};      // without work the KV cache is; 0: never
  std::string metrics_prefix = "kuiper";
  ReasoningField reasoning_field = ReasoningField::kBoth;
  size_t memory_tokens = 1 << 20;  // of answers whose ids are kept; 0: none
  ServiceSettings service;
  // Asked ten times a second: whether it is time to drain, as a signal says. May be empty.
  std::function<bool()> should_end = {};
};

}  // namespace kuiper
