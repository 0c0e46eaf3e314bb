// Headers of the server's responses.
#pragma once

#include "kuiper/server/http_server.h"

namespace kuiper {

// Adds the headers of a JSON response to `headers`.
inline HttpHeaders JsonHeaders(HttpHeaders headers) {
  headers.emplace_back("Content-Type", "application/json");
  return headers;
}

// Adds the headers of a stream of server-sent events to `headers`.
inline HttpHeaders EventHeaders(HttpHeaders headers) {
  headers.emplace_back("Content-Type", "text/event-stream");
  headers.emplace_back("Cache-Control", "no-cache");
  headers.emplace_back("X-Accel-Buffering", "no");
  return headers;
}

}  // namespace kuiper
