// Headers of the server's answers.
#pragma once

#include "kuiper/server/http_server.h"

namespace kuiper {

// `headers` with those of an answer in JSON.
inline HttpHeaders JsonHeaders(HttpHeaders headers) {
  headers.emplace_back("Content-Type", "application/json");
  return headers;
}

// The same with those of a stream of events.
inline HttpHeaders EventHeaders(HttpHeaders headers) {
  headers.emplace_back("Content-Type", "text/event-stream");
  headers.emplace_back("Cache-Control", "no-cache");
  headers.emplace_back("X-Accel-Buffering", "no");
  return headers;
}

}  // namespace kuiper
