#include "kuiper/server/http_reply.h"

#include <gtest/gtest.h>

namespace kuiper {
namespace {

const std::string kHead = "HTTP/1.1 200 OK\r\nX-One: 1\r\n";

TEST(HttpReply, AnAnswerMayComeInAnyPieces) {
  const std::string answers[] = {
      kHead + "Content-Length: 5\r\n\r\nhello",
      kHead + "Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;a=b\r\nllo\r\n0\r\n\r\n"};
  for (const std::string& answer : answers) {
    for (size_t cut = 0; cut <= answer.size(); ++cut) {
      HttpReply reply;
      std::string body;
      ASSERT_TRUE(reply.Push(answer.substr(0, cut)).ok()) << cut;
      body += reply.TakeBody();
      EXPECT_EQ(reply.is_done(), cut == answer.size());
      ASSERT_TRUE(reply.Push(answer.substr(cut)).ok()) << cut;
      body += reply.TakeBody();
      EXPECT_TRUE(reply.is_done()) << cut;
      EXPECT_EQ(reply.status(), 200);
      EXPECT_EQ(body, "hello");
      EXPECT_TRUE(reply.End().ok());
    }
    HttpReply slow;
    std::string body;
    for (const char c : answer) {
      ASSERT_TRUE(slow.Push(std::string_view(&c, 1)).ok());
      body += slow.TakeBody();
    }
    EXPECT_TRUE(slow.is_done());
    EXPECT_EQ(body, "hello");
  }
}

TEST(HttpReply, ABodyWithoutLengthEndsWithTheConnection) {
  HttpReply reply;
  ASSERT_TRUE(reply.Push(kHead + "\r\nhel").ok());
  ASSERT_TRUE(reply.Push("lo").ok());
  EXPECT_FALSE(reply.is_done());
  EXPECT_EQ(reply.TakeBody(), "hello");
  EXPECT_TRUE(reply.End().ok());
  EXPECT_TRUE(reply.is_done());
}

TEST(HttpReply, AnAnswerThatIsCutIsNone) {
  for (const char* rest : {"", "Content-Length: 5\r\n\r\nhell", "Content-Length: 5\r\n\r\n",
                           "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n"}) {
    HttpReply reply;
    ASSERT_TRUE(reply.Push(kHead + rest).ok());
    EXPECT_FALSE(reply.End().ok()) << rest;
    EXPECT_FALSE(reply.is_done()) << rest;
  }
  EXPECT_FALSE(HttpReply().End().ok());
}

TEST(HttpReply, WhatIsNoAnswerFails) {
  for (const std::string& bytes : {std::string("hello there\r\n\r\n"), std::string("SSH-2.0-x\r\n"),
                                   kHead + "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
                                   "HTTP/1.1 200 OK\r\nA: " + std::string(100000, 'a')}) {
    EXPECT_FALSE(HttpReply().Push(bytes).ok()) << bytes.substr(0, 50);
  }
}

}  // namespace
}  // namespace kuiper
