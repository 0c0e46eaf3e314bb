#include "kuiper/server/access.h"

#include <gtest/gtest.h>

#include "test/model/model_files.h"

namespace kuiper {
namespace {

HttpRequest With(std::vector<std::pair<std::string, std::string>> headers) {
  HttpRequest request;
  request.headers = std::move(headers);
  return request;
}

TEST(Access, KeysOfEitherHeader) {
  AccessRules rules;
  rules.api_keys = {"first", "second"};
  const auto check = [&](const HttpRequest& request) { return CheckAccess(rules, request, true); };
  EXPECT_EQ(check(With({{"authorization", "Bearer first"}})), Access::kAllowed);
  EXPECT_EQ(check(With({{"authorization", "bearer  second "}})), Access::kAllowed);
  EXPECT_EQ(check(With({{"x-api-key", "second"}})), Access::kAllowed);
  for (const char* wrong :
       {"Bearer", "Bearer ", "Bearer firs", "Bearer firstfirst", "Basic first", "first", ""}) {
    EXPECT_EQ(check(With({{"authorization", wrong}})), Access::kNoKey) << wrong;
  }
  EXPECT_EQ(check(With({})), Access::kNoKey);
  EXPECT_EQ(CheckAccess(rules, With({}), false), Access::kAllowed) << "needs no key";
}

TEST(Access, PagesOfOtherHostsMayNotAskTheLoopback) {
  const AccessRules rules;
  const auto check = [&](const HttpRequest& request) { return CheckAccess(rules, request, true); };
  for (const char* host : {"localhost", "localhost:8000", "127.0.0.1:1", "127.1.2.3", "[::1]:80",
                           "::1", "a.localhost"}) {
    EXPECT_EQ(check(With({{"host", host}})), Access::kAllowed) << host;
  }
  for (const char* host : {"evil.example", "127.0.0.1.evil.example", "", "localhost.evil", "[::2]",
                           "::2", "::1:evil"}) {
    EXPECT_EQ(check(With({{"host", host}})), Access::kWrongHost) << host;
  }
  EXPECT_EQ(check(With({})), Access::kWrongHost);
  AccessRules keyed;
  keyed.api_keys = {"k"};
  EXPECT_EQ(CheckAccess(keyed, With({{"host", "gpu.lan"}, {"x-api-key", "k"}}), true),
            Access::kAllowed)
      << "a page does not know the key";
}

TEST(Access, OriginsAreTheServersOwnOrTheOneThatIsGiven) {
  AccessRules rules;
  const auto check = [&](const char* origin) {
    return CheckAccess(rules, With({{"host", "localhost:8000"}, {"origin", origin}}), true);
  };
  EXPECT_EQ(check("http://localhost:8000"), Access::kAllowed);
  for (const char* origin : {"http://localhost:9000", "https://evil.example", "null", ""}) {
    EXPECT_EQ(check(origin), Access::kWrongOrigin) << origin;
  }
  rules.cors_origin = "https://app.example";
  EXPECT_EQ(check("https://app.example"), Access::kAllowed);
  EXPECT_EQ(check("https://evil.example"), Access::kWrongOrigin);
  rules.cors_origin = std::string("*");
  EXPECT_EQ(check("https://evil.example"), Access::kAllowed);
}

TEST(Access, RefusalsSayWhatHelps) {
  const auto says = [](Access access, const HttpRequest& request, const char* text) {
    const std::string message = AccessError({}, access, request).message;
    EXPECT_NE(message.find(text), std::string::npos) << message;
  };
  const HttpRequest page = With({{"host", "gpu.lan"}, {"origin", "http://localhost:3000"}});
  says(Access::kWrongOrigin, page, "\"http://localhost:3000\"");
  says(Access::kWrongOrigin, page, "cors_origin");
  says(Access::kWrongHost, page, "\"gpu.lan\"");
  says(Access::kWrongHost, page, "api_key_file");
  says(Access::kWrongHost, page, "and host chooses");
  says(Access::kWrongHost, With({}), "\"\"");
}

TEST(Access, PagesOfTheAllowedOriginMaySendAnyHeader) {
  AccessRules rules;
  const HttpRequest asks =
      With({{"origin", "https://app.example"},
            {"access-control-request-headers", "x-stainless-os, anthropic-version"}});
  EXPECT_TRUE(CorsHeaders(rules, asks).empty());
  rules.cors_origin = "https://app.example";
  const auto allowed = [&](const HttpRequest& request) {
    for (const auto& [name, value] : CorsHeaders(rules, request)) {
      if (name == "Access-Control-Allow-Headers") return value;
    }
    return std::string();
  };
  EXPECT_EQ(allowed(asks), "x-stainless-os, anthropic-version");
  EXPECT_NE(allowed(With({{"origin", "https://app.example"}})).find("authorization"),
            std::string::npos);
}

TEST(Access, TextsAreEqualOnlyAsAWhole) {
  EXPECT_TRUE(EqualInConstantTime("abc", "abc"));
  EXPECT_TRUE(EqualInConstantTime("", ""));
  for (const char* given : {"", "ab", "abcabc", "abd", "abcd"}) {
    EXPECT_FALSE(EqualInConstantTime(given, "abc")) << given;
  }
  EXPECT_FALSE(EqualInConstantTime("a", ""));
}

TEST(Access, BodiesAreJsonThatIsNotCompressed) {
  EXPECT_TRUE(HasJson(With({})));
  EXPECT_TRUE(HasJson(With({{"content-type", "application/json; charset=utf-8"}})));
  EXPECT_TRUE(HasJson(With({{"content-type", "application/x-www-form-urlencoded"}})));
  EXPECT_TRUE(HasJson(With({{"content-encoding", "identity"}})));
  EXPECT_FALSE(HasJson(With({{"content-type", "text/plain"}})));
  EXPECT_FALSE(HasJson(With({{"content-encoding", "gzip"}, {"content-type", "application/json"}})));
}

TEST(Access, KeyFiles) {
  const test::TempDir dir;
  test::WriteFile(dir / "keys", "# who\n  one \r\n\ntwo");
  const auto keys = ReadApiKeys(dir / "keys");
  ASSERT_TRUE(keys.ok());
  EXPECT_EQ(*keys, (std::vector<std::string>{"one", "two"}));
  test::WriteFile(dir / "none", "# nobody\n");
  EXPECT_FALSE(ReadApiKeys(dir / "none").ok());
  EXPECT_FALSE(ReadApiKeys(dir / "missing").ok());
}

}  // namespace
}  // namespace kuiper
