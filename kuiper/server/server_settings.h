// Settings of a server. Plain values; the programs fill them in.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "kuiper/server/access.h"
#include "kuiper/server/http_server.h"
#include "kuiper/server/reasoning_field.h"

namespace kuiper {

// The service manager to which the server reports its state.
struct ServiceSettings {
  std::string notify_socket;              // path or "@name"; "" = none
  std::chrono::microseconds watchdog{0};  // silence after which it kills the server; 0 = never
};

struct ServerSettings {
  HttpSettings http;
  AccessRules access;
  int max_queue = 4096;                           // waiting choices, besides the running ones
  size_t max_queue_bytes = size_t{256} << 20;     // their bodies and prompts
  size_t max_picture_bytes = size_t{512} << 20;   // pixels of running and waiting requests
  int64_t max_request_pixels = int64_t{1} << 28;  // all images of a request, as sent
  // Pixels that may be decoded at the same time. Decoding and scaling take 3 to 9 bytes per pixel.
  int64_t max_decoding_pixels = int64_t{1} << 26;
  std::chrono::milliseconds request_timeout{0};  // 0 = none
  std::chrono::milliseconds drain_timeout{30000};
  std::chrono::milliseconds ping_interval{15000};  // between pings of a silent stream
  std::chrono::milliseconds release_after{0};      // idle time until KV memory is freed; 0 = never
  std::string metrics_prefix = "kuiper";
  ReasoningField reasoning_field = ReasoningField::kBoth;
  size_t memory_tokens = 1 << 20;  // tokens in the answer memory; 0 = none
  ServiceSettings service;
  // Called ten times a second; returns true to drain, e.g. after a signal. May be empty.
  std::function<bool()> should_end = {};
};

}  // namespace kuiper
