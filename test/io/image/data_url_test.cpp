#include "kuiper/io/image/data_url.h"

#include <gtest/gtest.h>

#include <string>

namespace kuiper {
namespace {

StatusOr<std::string> Decode(const std::string& url, size_t max_bytes = 1 << 20) {
  return DecodeImageUrl(url, max_bytes, "image 1");
}

// Test vectors of RFC 4648, section 10.
TEST(DataUrlTest, DecodesThePublishedVectors) {
  const std::string head = "data:image/png;base64,";
  EXPECT_EQ(*Decode(head), "");
  EXPECT_EQ(*Decode(head + "Zg=="), "f");
  EXPECT_EQ(*Decode(head + "Zm8="), "fo");
  EXPECT_EQ(*Decode(head + "Zm9v"), "foo");
  EXPECT_EQ(*Decode(head + "Zm9vYg=="), "foob");
  EXPECT_EQ(*Decode(head + "Zm9vYmE="), "fooba");
  EXPECT_EQ(*Decode(head + "Zm9vYmFy"), "foobar");
  EXPECT_EQ(*Decode(head + "+/+/"), "\xFB\xFF\xBF");
}

TEST(DataUrlTest, HeadMayBeWrittenInSeveralWays) {
  for (const char* head :
       {"DATA:Image/JPEG;BASE64,", "data:image/svg+xml;charset=utf-8;base64,", "data:;base64,",
        "data:application/octet-stream;base64,", "data:text/plain;base64,",
        "data:image/png; base64 ,", "data:image/png;name=\"a;b\";base64,", "data:base64;base64,"}) {
    ASSERT_TRUE(Decode(std::string(head) + "Zm9v").ok()) << head;
    EXPECT_EQ(*Decode(std::string(head) + "Zm9v"), "foo") << head;
  }
}

TEST(DataUrlTest, DataIsTakenAsBrowsersTakeIt) {
  const std::string head = "data:image/png;base64,";
  EXPECT_EQ(*Decode(head + "Zg"), "f") << "without padding";
  EXPECT_EQ(*Decode(head + "Zm8"), "fo");
  EXPECT_EQ(*Decode(head + "Zg="), "f");
  EXPECT_EQ(*Decode(head + "Zh=="), "f") << "bits that no byte takes";
  EXPECT_EQ(*Decode(head + "Zm 9v\r\nYm\tFy\n"), "foobar");
  EXPECT_EQ(*Decode(head + "Zg = =\n"), "f");
  EXPECT_EQ(*Decode(head + "%2B%2f%2B/"), "\xFB\xFF\xBF");
  EXPECT_EQ(*Decode(head + "Zg%3D%3D%0A"), "f");
  EXPECT_EQ(*Decode(head + "-_-_"), "\xFB\xFF\xBF") << "the alphabet of URLs";
}

TEST(DataUrlTest, RefusesEverythingElse) {
  const struct {
    const char* url;
    const char* says;
  } cases[] = {
      {"", "is not a data: URL"},
      {"https://example.org/a.png", "is not a data: URL"},
      {"file:///etc/passwd", "is not a data: URL"},
      {"data:image/png;base64", "no comma"},
      {"data:image/png,Zm9v", "not in base64"},
      {"data:,Zm9v", "not in base64"},
      {"data:base64,Zm9v", "not in base64"},
      {"data:image/png;base64;x,Zm9v", "not in base64"},
      {"data:image/png;base64,Z", "not valid base64"},
      {"data:image/png;base64,Zm9vZ", "not valid base64"},
      {"data:image/png;base64,Z===", "not valid base64"},
      {"data:image/png;base64,====", "not valid base64"},
      {"data:image/png;base64,=", "not valid base64"},
      {"data:image/png;base64,Zm9v=", "not valid base64"},
      {"data:image/png;base64,Zg==Zg==", "not valid base64"},
      {"data:image/png;base64,Zm%9v", "not valid base64"},
      {"data:image/png;base64,Zm9%", "not valid base64"},
      {"data:image/png;base64,Zm9%2", "not valid base64"},
      {"data:image/png;base64,Zm9%80", "not valid base64"},
      {"data:image/png;base64,Zm9\xC3", "not valid base64"},
  };
  for (const auto& c : cases) {
    const auto bytes = Decode(c.url);
    ASSERT_FALSE(bytes.ok()) << c.url;
    EXPECT_EQ(bytes.status().code(), StatusCode::kInput) << c.url;
    EXPECT_NE(bytes.status().message().find(c.says), std::string::npos) << bytes.status().message();
    EXPECT_FALSE(bytes.status().hint().empty());
  }
}

TEST(DataUrlTest, SizeIsLimited) {
  const std::string head = "data:image/png;base64,";
  EXPECT_EQ(Decode(head + std::string(400, 'A'), 300)->size(), 300u);
  EXPECT_FALSE(Decode(head + std::string(402, 'A'), 300).ok());
  EXPECT_EQ(Decode(head + std::string(1000, ' ') + "Zg", 1)->size(), 1u) << "blanks are no bytes";
}

}  // namespace
}  // namespace kuiper
