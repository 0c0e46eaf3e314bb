// Fuzzes what a server reads from untrusted clients: bytes in pieces are parsed into requests, and
// their bodies into generation requests.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kuiper/base/check.h"
#include "kuiper/server/access.h"
#include "kuiper/server/api_request.h"
#include "kuiper/server/http_parser.h"

namespace {

using kuiper::HttpParser;

std::string Digest(const kuiper::HttpRequest& request) {
  std::string text = request.method + ' ' + request.path + '?' + request.query + '\n';
  for (const auto& [name, value] : request.headers) text += name + ':' + value + '\n';
  return text + request.body;
}

void Answer(const kuiper::HttpRequest& request) {
  kuiper::AccessRules rules;
  rules.api_keys = {"key"};
  kuiper::CheckAccess(rules, request, true);
  auto body = kuiper::ParseJson(request.body, kuiper::StatusCode::kInput, "body");
  if (body.ok()) kuiper::ParseApiRequest(*body, request.path != "/c", {}).ok();
}

// Returns all requests in the bytes, pushed `step` at a time.
std::string Read(std::string_view bytes, size_t step) {
  HttpParser parser({.max_header = 1024, .max_body = 4096});
  std::string digest;
  for (size_t at = 0; at < bytes.size() && parser.state() != HttpParser::State::kFailed;) {
    parser.Push(bytes.substr(at, step));
    at += step;
    while (parser.state() == HttpParser::State::kDone) {
      const kuiper::HttpRequest request = parser.Take();
      KU_CHECK(request.body.size() <= 4096);
      digest += Digest(request);
      Answer(request);
    }
  }
  return digest;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string whole = Read(bytes, size + 1), split = Read(bytes, 7);
  // Limits are checked when bytes arrive, so in pieces an overlong request may be noticed later.
  KU_CHECK(whole == split || whole.starts_with(split) || split.starts_with(whole));
  return 0;
}
