// Access control: API keys, and the Host and Origin headers, which a foreign web page cannot
// choose. Pure functions of a request's header.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/server/api_error.h"
#include "kuiper/server/http_server.h"

namespace kuiper {

struct AccessRules {
  std::vector<std::string> api_keys;  // if empty, no key is required
  // Refuse requests to the loopback address whose Host is a foreign name (DNS rebinding).
  bool check_host = true;
  Speller spell = BareName;  // how messages spell the settings of the serving program
  std::string cors_origin;   // "*", or the one allowed origin; "" = none
};

enum class Access { kAllowed, kNoKey, kWrongHost, kWrongOrigin };

// `needs_key`: false for public routes such as /health.
Access CheckAccess(const AccessRules& rules, const HttpRequest& request, bool needs_key);
// The error for a denied request; its message says what the user can do.
ApiError AccessError(const AccessRules& rules, Access access, const HttpRequest& request);
// The CORS headers that let a page of an allowed origin read the response.
HttpHeaders CorsHeaders(const AccessRules& rules, const HttpRequest& request);

// Reads one key per line; trims blanks and skips lines that begin with #. kInvalidArgument if the
// file has no key.
StatusOr<std::vector<std::string>> ReadApiKeys(const std::string& path);

// False if the headers say that the body is compressed or not JSON. The default type of curl -d
// counts as JSON too. This is safe although a foreign page can send it, because the origin is
// checked.
bool HasJson(const HttpRequest& request);
// True if a Host header, with or without a port, names this machine.
bool IsLoopback(std::string_view host);

// True if a client may use this request id; it is repeated in a header and in the log.
bool IsRequestId(std::string_view id);

// Compares in a time that depends only on the length of `given`, not on `key`.
bool EqualInConstantTime(std::string_view given, std::string_view key);

}  // namespace kuiper
