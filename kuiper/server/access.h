// Who may ask: API keys, and the Host and Origin headers that a web page of somebody else's cannot
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
  std::vector<std::string> api_keys;  // empty: none is asked for
  // A page of another host may not ask the loopback by a name that points there.
  bool check_host = true;
  Speller spell = BareName;  // how messages call the settings of the program that serves
  std::string cors_origin;   // "*", or the one origin whose pages may ask; "" = none
};

enum class Access { kAllowed, kNoKey, kWrongHost, kWrongOrigin };

// `needs_key`: false for what anybody may know, as whether the server is well.
Access CheckAccess(const AccessRules& rules, const HttpRequest& request, bool needs_key);
// What a client hears that may not ask, and what its user can do.
ApiError AccessError(const AccessRules& rules, Access access, const HttpRequest& request);
// What the answer to a page of another origin has, so that the page may read it.
HttpHeaders CorsHeaders(const AccessRules& rules, const HttpRequest& request);

// The keys of a file: a line each, without blanks around it; lines that begin with # do not count.
// kInvalidArgument when there is none.
StatusOr<std::vector<std::string>> ReadApiKeys(const std::string& path);

// Whether the body is JSON and not compressed, as far as the headers say. What curl -d says of its
// own accord is taken for JSON, too: a page of another origin cannot send it unnoticed, its origin
// is checked.
bool HasJson(const HttpRequest& request);
// Whether a Host header, with or without a port, names the machine itself.
bool IsLoopback(std::string_view host);

// Whether a client may call its request so: the name comes back in a header and in the log.
bool IsRequestId(std::string_view id);

// In the time that the length of `given` takes, whatever is in `key`.
bool EqualInConstantTime(std::string_view given, std::string_view key);

}  // namespace kuiper
