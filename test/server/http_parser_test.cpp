#include "kuiper/server/http_parser.h"

#include <gtest/gtest.h>

namespace kuiper {
namespace {

using State = HttpParser::State;

const std::string kPost =
    "POST /v1/x?a=b HTTP/1.1\r\nHost: localhost\r\nX-One: 1\r\nContent-Length: 5\r\n\r\nhello";

void ExpectPost(const HttpRequest& request) {
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.path, "/v1/x");
  EXPECT_EQ(request.query, "a=b");
  ASSERT_NE(request.Header("x-one"), nullptr);
  EXPECT_EQ(*request.Header("x-one"), "1");
  EXPECT_EQ(request.Header("x-two"), nullptr);
  EXPECT_EQ(request.body, "hello");
  EXPECT_TRUE(request.keep_alive);
}

TEST(HttpParser, PercentSignsStandForBytes) {
  EXPECT_EQ(PercentDecoded("Qwen%2FQwen3-8B"), "Qwen/Qwen3-8B");
  EXPECT_EQ(PercentDecoded("%e4%BD%a0"), "\xe4\xbd\xa0");
  for (const char* same : {"", "a+b", "%", "%2", "100%x1", "%-1", "%2x"}) {
    EXPECT_EQ(PercentDecoded(same), same);
  }
}

int ErrorOfBytes(const std::string& bytes, HttpLimits limits = {}) {
  HttpParser parser(limits);
  parser.Push(bytes);
  EXPECT_EQ(parser.state(), State::kFailed) << bytes.substr(0, 100);
  EXPECT_FALSE(parser.error().empty());
  return parser.error_status();
}

TEST(HttpParser, ARequestMayComeInAnyPieces) {
  for (size_t cut = 0; cut <= kPost.size(); ++cut) {
    HttpParser parser({});
    EXPECT_FALSE(parser.has_begun());
    parser.Push(kPost.substr(0, cut));
    EXPECT_EQ(parser.has_begun(), cut > 0);
    parser.Push(kPost.substr(cut));
    ASSERT_EQ(parser.state(), State::kDone) << cut;
    ExpectPost(parser.Take());
    EXPECT_FALSE(parser.has_begun());
  }
  HttpParser parser({});
  for (const char c : kPost) parser.Push(std::string_view(&c, 1));
  ASSERT_EQ(parser.state(), State::kDone);
  ExpectPost(parser.Take());
}

TEST(HttpParser, RequestsFollowEachOther) {
  HttpParser parser({});
  parser.Push(kPost + "GET /y HTTP/1.0\r\n\r\n" + kPost.substr(0, 20));
  ASSERT_EQ(parser.state(), State::kDone);
  ExpectPost(parser.Take());
  ASSERT_EQ(parser.state(), State::kDone);
  const HttpRequest second = parser.Take();
  EXPECT_EQ(second.path, "/y");
  EXPECT_TRUE(second.is_http_1_0);
  EXPECT_FALSE(second.keep_alive);
  EXPECT_EQ(parser.state(), State::kHeader);
  parser.Push(kPost.substr(20));
  ASSERT_EQ(parser.state(), State::kDone);
  ExpectPost(parser.Take());
}

TEST(HttpParser, ChunkedBodies) {
  const std::string head = "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
  HttpParser parser({});
  parser.Push(head + "3\r\nabc\r\n2;ext=1\r\nde\r\n0\r\n\r\n");
  ASSERT_EQ(parser.state(), State::kDone);
  EXPECT_EQ(parser.Take().body, "abcde");
  EXPECT_EQ(ErrorOfBytes(head + "zz\r\nabc"), 400);
  EXPECT_EQ(ErrorOfBytes(head + "3\r\nabcd\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(ErrorOfBytes(head + "fffffffffffffffff\r\n"), 400);
  EXPECT_EQ(ErrorOfBytes(head + "ff\r\n" + std::string(255, 'x'), {.max_body = 100}), 413);
}

TEST(HttpParser, WhatIsTooLongIsKnownBeforeItIsRead) {
  EXPECT_EQ(ErrorOfBytes("POST / HTTP/1.1\r\nContent-Length: 1073741824\r\n\r\n"), 413);
  EXPECT_EQ(ErrorOfBytes("GET / HTTP/1.1\r\nA: " + std::string(1 << 20, 'a')), 431);
  EXPECT_EQ(ErrorOfBytes("GET /" + std::string(1 << 20, 'a')), 431);
  HttpParser parser({.max_body = 5});
  parser.Push(kPost);
  EXPECT_EQ(parser.state(), State::kDone) << "exactly as long as it may be";
}

TEST(HttpParser, WhatIsNoHttpFails) {
  EXPECT_EQ(ErrorOfBytes("hello there\r\n\r\n"), 400);
  EXPECT_EQ(ErrorOfBytes("GET / HTTP/2.0\r\n\r\n"), 400);
  EXPECT_EQ(ErrorOfBytes("GET / HTTP/1.1\r\nno colon\r\n\r\n"), 400);
  EXPECT_EQ(ErrorOfBytes("GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n"), 400);
  // Two lengths: what one server takes for a body is another's next request.
  EXPECT_EQ(
      ErrorOfBytes("POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"),
      400);
  EXPECT_EQ(ErrorOfBytes("POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n"), 400);
}

TEST(HttpParser, ClientsMayWaitForPermission) {
  HttpParser parser({});
  parser.Push("POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(parser.state(), State::kBody);
  EXPECT_TRUE(parser.expects_continue());
  parser.Push("ab");
  ASSERT_EQ(parser.state(), State::kDone);
  EXPECT_EQ(parser.Take().body, "ab");
}

}  // namespace
}  // namespace kuiper
