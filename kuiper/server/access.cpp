#include "kuiper/server/access.h"

#include <algorithm>
#include <cctype>

#include "kuiper/base/text.h"
#include "kuiper/base/trim.h"

namespace kuiper {
namespace {

constexpr size_t kMaxKeyFile = 1 << 20;
constexpr size_t kMaxRequestId = 128;
constexpr size_t kMaxQuoted = 100;

// Returns the host without the port. An address with several colons but no brackets has no port.
std::string_view HostName(std::string_view host) {
  if (host.starts_with("[")) return host.substr(0, std::min(host.find(']') + 1, host.size()));
  const size_t colon = host.find(':');
  return colon == host.rfind(':') ? host.substr(0, colon) : host;
}

bool HasKey(const AccessRules& rules, const HttpRequest& request) {
  std::string_view given;
  if (const std::string* bearer = request.Header("authorization"); bearer != nullptr) {
    constexpr std::string_view kScheme = "bearer ";
    std::string scheme = bearer->substr(0, kScheme.size());
    std::transform(scheme.begin(), scheme.end(), scheme.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (scheme == kScheme) given = Trimmed(std::string_view(*bearer).substr(kScheme.size()));
  } else if (const std::string* key = request.Header("x-api-key"); key != nullptr) {
    given = *key;
  }
  bool found = false;
  for (const std::string& key : rules.api_keys) found |= EqualInConstantTime(given, key);
  return found;
}

}  // namespace

bool EqualInConstantTime(std::string_view given, std::string_view key) {
  unsigned difference = given.size() == key.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i) {
    const char expected = key.empty() ? '\0' : key[i % key.size()];
    difference |= static_cast<unsigned char>(given[i]) ^ static_cast<unsigned char>(expected);
  }
  return difference == 0;
}

bool IsRequestId(std::string_view id) {
  return !id.empty() && id.size() <= kMaxRequestId &&
         std::all_of(id.begin(), id.end(), [](unsigned char c) {
           return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.' || c == ':';
         });
}

bool HasJson(const HttpRequest& request) {
  const std::string* coding = request.Header("content-encoding");
  if (coding != nullptr && *coding != "identity") return false;
  const std::string* type = request.Header("content-type");
  return type == nullptr || type->starts_with("application/json") ||
         type->starts_with("application/x-www-form-urlencoded");
}

bool IsLoopback(std::string_view host) {
  const std::string_view name = HostName(host);
  return name == "localhost" || name == "[::1]" || name == "::1" || name.ends_with(".localhost") ||
         (name.starts_with("127.") &&
          name.find_first_not_of("0123456789.") == std::string_view::npos);
}

Access CheckAccess(const AccessRules& rules, const HttpRequest& request, bool needs_key) {
  const std::string* host = request.Header("host");
  const std::string host_text = host == nullptr ? "" : *host;
  if (rules.check_host && rules.api_keys.empty() && !IsLoopback(host_text)) {
    return Access::kWrongHost;
  }
  // Browsers send the origin of the page; the origin of the server's own page is the server's host.
  if (const std::string* origin = request.Header("origin"); origin != nullptr) {
    const size_t scheme = origin->find("://");
    const bool is_own = scheme != std::string::npos && origin->substr(scheme + 3) == host_text;
    const bool is_listed =
        rules.cors_origin == "*" || (!origin->empty() && rules.cors_origin == *origin);
    if (!is_own && !is_listed) return Access::kWrongOrigin;
  }
  return !needs_key || rules.api_keys.empty() || HasKey(rules, request) ? Access::kAllowed
                                                                        : Access::kNoKey;
}

ApiError AccessError(const AccessRules& rules, Access access, const HttpRequest& request) {
  if (access == Access::kNoKey) {
    return MakeError(401, "invalid_api_key", "the API key is missing or wrong");
  }
  const auto quoted = [&](const char* name) {
    const std::string* value = request.Header(name);
    return Quoted(value == nullptr ? "" : value->substr(0, kMaxQuoted));
  };
  if (access == Access::kWrongHost) {
    return MakeError(403, "wrong_host",
                     "the Host header " + quoted("host") +
                         " does not name this machine, and the server listens for this machine "
                         "alone; with an API key (" +
                         rules.spell("api_key_file") + ") any name will do, and " +
                         rules.spell("host") + " chooses another address to listen on");
  }
  return MakeError(403, "wrong_origin",
                   "pages of the origin " + quoted("origin") + " may not ask this server; " +
                       rules.spell("cors_origin") + " with this origin, or * for all, allows it");
}

HttpHeaders CorsHeaders(const AccessRules& rules, const HttpRequest& request) {
  const std::string* origin = request.Header("origin");
  if (origin == nullptr || rules.cors_origin.empty()) return {};
  // Client libraries add their own headers, so an allowed page may send any header.
  const std::string* wanted = request.Header("access-control-request-headers");
  return {{"Access-Control-Allow-Origin", rules.cors_origin},
          {"Access-Control-Allow-Headers",
           wanted != nullptr ? *wanted : "authorization, content-type, x-api-key, x-request-id"},
          {"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
          {"Access-Control-Expose-Headers", "X-Request-Id, Retry-After"},
          {"Vary", "Origin, Access-Control-Request-Headers"}};
}

StatusOr<std::vector<std::string>> ReadApiKeys(const std::string& path) {
  KU_ASSIGN_OR_RETURN(const std::string text,
                      ReadTextFile(path, kMaxKeyFile, StatusCode::kInvalidArgument));
  std::vector<std::string> keys;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = Trimmed(std::string_view(text).substr(begin, end - begin));
    if (!line.empty() && line.front() != '#') keys.emplace_back(line);
    begin = end + 1;
  }
  if (keys.empty()) return Status(StatusCode::kInvalidArgument, path + " holds no API key");
  return keys;
}

}  // namespace kuiper
