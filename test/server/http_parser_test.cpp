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
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
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
  EXPECT_EQ(ErrorOfBytes("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n"), 413);
  EXPECT_EQ(ErrorOfBytes("GET / HTTP/1.1\r\nHost: x\r\nA: " + std::string(1 << 20, 'a')), 431);
  EXPECT_EQ(ErrorOfBytes("GET /" + std::string(1 << 20, 'a')), 431);
  HttpParser parser({.max_body = 5});
  parser.Push(kPost);
  EXPECT_EQ(parser.state(), State::kDone) << "exactly as long as it may be";
}

TEST(HttpParser, WhatIsNoHttpFails) {
  EXPECT_EQ(ErrorOfBytes("hello there\r\n\r\n"), 400);
  EXPECT_EQ(ErrorOfBytes("GET / HTTP/2.0\r\n\r\n"), 400);
  EXPECT_EQ(ErrorOfBytes("GET / HTTP/1.1\r\nHost: x\r\nno colon\r\n\r\n"), 400);
  EXPECT_EQ(ErrorOfBytes("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n"), 400);
  // Two lengths: one server's body is another server's next request.
  EXPECT_EQ(
      ErrorOfBytes(
          "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n"),
      400);
  EXPECT_EQ(
      ErrorOfBytes("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n"),
      400);
}

// Each of these hides a second request from a proxy that finds the body's end elsewhere. No bytes
// after the header may be read as a request.
TEST(HttpParser, ABodyWhoseEndIsUnsureIsNoRequest) {
  const std::string next = "0\r\n\r\nGET /next HTTP/1.1\r\nHost: x\r\n\r\n";
  for (const char* fields : {"Transfer-Encoding: xchunked",
                             "Transfer-Encoding: chunked, identity",
                             "Transfer-Encoding: gzip, chunked",
                             "Transfer-Encoding: identity",
                             "Transfer-Encoding:",
                             "Transfer-Encoding: chunked, chunked",
                             "Transfer-Encoding: chunked;q=1",
                             "Transfer-Encoding: \"chunked\"",
                             "Transfer-Encoding: chunked,",
                             "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
                             "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
                             "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
                             "Transfer-Encoding: chunked\r\nContent-Length: 5",
                             "Content-Length: 5\r\nTransfer-Encoding: chunked",
                             "Transfer-Encoding: xchunked\r\nContent-Length: 5",
                             "Content-Length: 5\r\nTransfer-Encoding: xchunked",
                             "Transfer-Encoding : chunked",
                             "Content-Length : 5",
                             "Content-Length: 5\r\nContent-Length: 6",
                             "Content-Length: 5, 6",
                             "Content-Length: +5",
                             "Content-Length: 0x5",
                             "Content-Length: 5 5",
                             "Content-Length:",
                             "Content-Length: 99999999999999999999999",
                             " Content-Length: 5",
                             "Host: y",
                             "Content-Length: 5\nTransfer-Encoding: chunked",
                             "Content-Length: 5\rX: y",
                             "X: a\x01"}) {
    EXPECT_EQ(
        ErrorOfBytes(std::string("POST / HTTP/1.1\r\nHost: x\r\n") + fields + "\r\n\r\n" + next),
        400)
        << fields;
  }
  EXPECT_EQ(ErrorOfBytes("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n" + next), 400);
}

TEST(HttpParser, OneWayToSayWhereTheBodyEndsIsEnough) {
  for (const char* fields : {"Transfer-Encoding: chunked", "transfer-encoding:  Chunked ",
                             "Transfer-Encoding:\r\n chunked"}) {
    HttpParser parser({});
    parser.Push(std::string("POST / HTTP/1.1\r\nHost: x\r\n") + fields +
                "\r\n\r\n1\r\na\r\n0\r\n\r\n");
    ASSERT_EQ(parser.state(), State::kDone) << fields << parser.error();
    EXPECT_EQ(parser.Take().body, "a");
    EXPECT_FALSE(parser.has_begun());
  }
  for (const char* length : {"5", "5, 5", "5\r\nContent-Length: 5", "005"}) {
    HttpParser parser({});
    parser.Push(std::string("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: ") + length +
                "\r\n\r\nhello");
    ASSERT_EQ(parser.state(), State::kDone) << length << parser.error();
    EXPECT_EQ(parser.Take().body, "hello");
  }
}

TEST(HttpParser, ChunksMayNotHideAnything) {
  const std::string head = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const char* body :
       {"-1\r\na", "+1\r\na\r\n", "0x1\r\na\r\n", " 1\r\na\r\n", "1 \r\na\r\n", "\r\n",
        "1\na\n0\n\n", "1\r\nab\r\n", "1\r\na0\r\n\r\n", "1;\r\na\r\n", "1;a=\"\r\nb\"\r\na",
        "10000000000000000\r\n", "0\r\nContent-Length: 5\r\n\r\n",
        "0\r\nTransfer-Encoding: chunked\r\n\r\n"}) {
    EXPECT_EQ(ErrorOfBytes(head + body + "\r\n0\r\n\r\n"), 400) << body;
  }
  // Endless lines do not fill the memory.
  EXPECT_EQ(ErrorOfBytes(head + "1;" + std::string(20000, 'x')), 431);
  EXPECT_EQ(ErrorOfBytes(head + "0\r\nX: " + std::string(20000, 'x')), 431);
  // Trailers after the body are not headers: they must not change the host or the API key.
  HttpParser parser({});
  parser.Push(head + "1\r\na\r\n0\r\nHost: evil\r\nX-Api-Key: k\r\n\r\n");
  ASSERT_EQ(parser.state(), State::kDone) << parser.error();
  const HttpRequest request = parser.Take();
  EXPECT_EQ(*request.Header("host"), "x");
  EXPECT_EQ(request.Header("x-api-key"), nullptr);
}

TEST(HttpParser, ARequestSaysOnceWhomItIsFor) {
  EXPECT_EQ(ErrorOfBytes("GET / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(ErrorOfBytes("GET http://a/ HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(ErrorOfBytes("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(ErrorOfBytes("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
  for (const char* host : {"a b", "a,b", "a/b", "u@a", "a\\b", "http://a", "a?b", "a#b"}) {
    EXPECT_EQ(ErrorOfBytes(std::string("GET / HTTP/1.1\r\nHost: ") + host + "\r\n\r\n"), 400)
        << host;
  }
  for (const char* host : {"", "a", "a.b:80", "[::1]:80", "127.0.0.1"}) {
    HttpParser parser({});
    parser.Push(std::string("GET / HTTP/1.1\r\nHost: ") + host + "\r\n\r\n");
    ASSERT_EQ(parser.state(), State::kDone) << host << parser.error();
    EXPECT_EQ(*parser.Take().Header("host"), host);
  }
}

TEST(HttpParser, TheTargetMayBeAWholeUrl) {
  const struct {
    const char *target, *host, *path, *query;
  } cases[] = {{"http://localhost/health", "localhost", "/health", ""},
               {"HTTP://evil.example:80/a/b?c=/d", "evil.example:80", "/a/b", "c=/d"},
               {"https://[::1]?x=1", "[::1]", "/", "x=1"},
               {"http://a", "a", "/", ""},
               {"/http://a/b", "given", "/http://a/b", ""}};
  for (const auto& c : cases) {
    HttpParser parser({});
    parser.Push(std::string("GET ") + c.target + " HTTP/1.1\r\nHost: given\r\n\r\n");
    ASSERT_EQ(parser.state(), State::kDone) << c.target << parser.error();
    const HttpRequest request = parser.Take();
    EXPECT_EQ(*request.Header("host"), c.host);
    EXPECT_EQ(request.path, c.path);
    EXPECT_EQ(request.query, c.query);
  }
  for (const char* target : {"http://", "http:///x", "http://u@a/", "http://a,b/", "ftp://a/",
                             "a/b", "*", "http:/a", "?x"}) {
    EXPECT_EQ(ErrorOfBytes(std::string("GET ") + target + " HTTP/1.1\r\nHost: x\r\n\r\n"), 400)
        << target;
  }
  EXPECT_EQ(ErrorOfBytes("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n"), 400) << "no proxy";
  HttpParser parser({});
  parser.Push("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n");
  ASSERT_EQ(parser.state(), State::kDone);
  EXPECT_EQ(parser.Take().path, "*");
}

TEST(HttpParser, ClientsMayWaitForPermission) {
  HttpParser parser({});
  parser.Push("POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(parser.state(), State::kBody);
  EXPECT_TRUE(parser.expects_continue());
  parser.Push("ab");
  ASSERT_EQ(parser.state(), State::kDone);
  EXPECT_EQ(parser.Take().body, "ab");
}

}  // namespace
}  // namespace kuiper
