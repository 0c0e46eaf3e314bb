// The cost of images: small bodies that ask for much decoding. The tests count decoded pixels and
// measure no times.
#include <gtest/gtest.h>
#include <png.h>

#include <memory>
#include <string>
#include <vector>

#include "test/server/base64.h"
#include "test/server/served_engine.h"

namespace kuiper {
namespace {

using Json = nlohmann::json;
using test::Eventually;
using test::RawClient;
using test::ServedEngine;

constexpr int kSide = 7900;
constexpr int64_t kPixels = int64_t{kSide} * kSide;

void Append(png_structp png, png_bytep bytes, size_t count) {
  static_cast<std::string*>(png_get_io_ptr(png))->append(reinterpret_cast<char*>(bytes), count);
}

// Returns a black image of 1 bit per pixel, a few KB large; it differs for each `number`.
std::string LargePng(uint8_t number) {
  std::string file;
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(png, &file, Append, nullptr);
  png_set_compression_level(png, 1);
  png_set_IHDR(png, info, kSide, kSide, 1, PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  std::vector<uint8_t> row(kSide / 8 + 1);
  row[0] = number;
  for (int y = 0; y < kSide; ++y) png_write_row(png, row.data());
  png_write_end(png, info);
  png_destroy_write_struct(&png, &info);
  return file;
}

Json ImageOf(const std::string& file) {
  return {{"type", "image_url"},
          {"image_url", {{"url", "data:image/png;base64," + test::Base64(file)}}}};
}

// Returns a body with a question about `num_pictures` large images.
std::string LargeBody(int num_pictures, const std::string& text = "What is it?") {
  Json parts = Json::array({{{"type", "text"}, {"text", text}}});
  for (int i = 0; i < num_pictures; ++i)
    parts.push_back(ImageOf(LargePng(static_cast<uint8_t>(i))));
  return Json{{"messages", {{{"role", "user"}, {"content", parts}}}}, {"max_tokens", 3}}.dump();
}

EngineConfig SeeingConfig(int max_context = 512) {
  EngineConfig config;
  config.model_path = test::Source("demo/models/tiny-qwen3-vl");
  config.max_context = max_context;
  return config;
}

// Settings that allow 20 large images in one request.
ServerSettings Generous() {
  ServerSettings settings;
  settings.max_request_pixels = 100 * kPixels;
  settings.max_decoding_pixels = 2 * kPixels;
  return settings;
}

int64_t NumDecoded(ServedEngine& served) {
  return static_cast<int64_t>(
      served.Metric("kuiper:picture_pixels_decoded_total{model_name=\"tiny\"}"));
}

int64_t NumCancelled(ServedEngine& served) {
  return static_cast<int64_t>(
      served.Metric("kuiper:picture_decodings_cancelled_total{model_name=\"tiny\"}"));
}

TEST(PictureWork, ClientsThatLeaveEndTheirDecoding) {
  ServedEngine served(SeeingConfig(), Generous());
  const std::string request = RawClient::PostOf(LargeBody(20));
  auto first = std::make_unique<RawClient>(served.port());
  auto second = std::make_unique<RawClient>(served.port());
  first->Send(request);
  second->Send(request);
  ASSERT_TRUE(Eventually([&] { return NumDecoded(served) > 0; }));
  // Other requests are answered in the meantime.
  EXPECT_EQ(served.Chat({}).status, 200);
  EXPECT_LT(NumDecoded(served), 40 * kPixels) << "the text did not wait for the pictures";
  EXPECT_FALSE(first->HasAnswer() || second->HasAnswer());
  first.reset();
  second.reset();
  ASSERT_TRUE(Eventually([&] { return NumCancelled(served) == 2; }));
  const int64_t at_cancellation = NumDecoded(served);
  EXPECT_EQ(served.Chat({}).status, 200);
  // Each of the two workers may have been in the middle of a row.
  EXPECT_LE(NumDecoded(served) - at_cancellation, 2 * kSide);
  EXPECT_LT(at_cancellation, 40 * kPixels);
}

TEST(PictureWork, WhatDoesNotFitTheContextIsNotDecoded) {
  ServedEngine served(SeeingConfig(4096));
  std::string text;
  for (int i = 0; i < 16000; ++i) text += "word ";
  const auto answer = served.Ask("POST", "/v1/chat/completions", LargeBody(30, text));
  EXPECT_EQ(answer.status, 400);
  const Json error = Json::parse(answer.body)["error"];
  EXPECT_EQ(error["code"], "context_length_exceeded") << error;
  EXPECT_GT(error["n_prompt_tokens"], 16000);
  EXPECT_EQ(NumDecoded(served), 0);
}

TEST(PictureWork, CountingTokensDecodesNothing) {
  ServedEngine served(SeeingConfig());
  Json body = Json::parse(LargeBody(3));
  body.erase("max_tokens");  // /tokenize does not have this field
  const auto counted = served.Ask("POST", "/tokenize", body.dump());
  ASSERT_EQ(counted.status, 200) << counted.body;
  EXPECT_GT(Json::parse(counted.body)["count"], 3 * 16);
  EXPECT_EQ(NumDecoded(served), 0);
}

TEST(PictureWork, PixelsOfARequestAreLimited) {
  ServerSettings settings;
  settings.max_request_pixels = 2 * kPixels;
  ServedEngine served(SeeingConfig(), settings);
  const auto answer = served.Ask("POST", "/v1/chat/completions", LargeBody(3));
  EXPECT_EQ(answer.status, 400);
  const Json error = Json::parse(answer.body)["error"];
  EXPECT_EQ(error["code"], "invalid_value");
  EXPECT_EQ(error["param"], "messages");
  const std::string message = error["message"];
  EXPECT_NE(message.find("179 megapixels together; this server takes 120"), std::string::npos)
      << message;
  EXPECT_NE(message.find("(max_request_megapixels)"), std::string::npos) << message;
  EXPECT_EQ(NumDecoded(served), 0);
  EXPECT_EQ(served.Ask("POST", "/v1/chat/completions", LargeBody(2)).status, 200);
  EXPECT_EQ(NumDecoded(served), 2 * kPixels);
}

TEST(PictureWork, APictureLargerThanAllAtOneTimeIsRefused) {
  ServerSettings settings;
  settings.max_decoding_pixels = kPixels - 1;
  ServedEngine served(SeeingConfig(), settings);
  const auto answer = served.Ask("POST", "/v1/chat/completions", LargeBody(1));
  EXPECT_EQ(answer.status, 400);
  EXPECT_NE(answer.body.find("(max_decoding_megapixels)"), std::string::npos) << answer.body;
  EXPECT_EQ(NumDecoded(served), 0);
}

TEST(PictureWork, RequestsWaitForTheirTurn) {
  ServerSettings settings = Generous();
  settings.max_decoding_pixels = kPixels;  // one at a time
  ServedEngine served(SeeingConfig(), settings);
  auto first = std::make_unique<RawClient>(served.port());
  first->Send(RawClient::PostOf(LargeBody(20)));
  ASSERT_TRUE(Eventually([&] { return NumDecoded(served) > 0; }));
  auto second = std::make_unique<RawClient>(served.port());
  RawClient third(served.port());
  second->Send(RawClient::PostOf(LargeBody(20)));
  third.Send(RawClient::PostOf(LargeBody(1)));
  ASSERT_TRUE(Eventually(
      [&] { return served.Metric("kuiper:num_requests_waiting{model_name=\"tiny\"}") == 3; }));
  second.reset();  // leaves the queue
  ASSERT_TRUE(Eventually(
      [&] { return served.Metric("kuiper:requests_aborted_total{model_name=\"tiny\"}") == 1; }));
  first.reset();
  const auto answer = third.ReadAnswer();
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_LT(NumDecoded(served), 21 * kPixels);
}

TEST(PictureWork, TheServerEndsWithoutWaitingForPictures) {
  int64_t num_decoded = 0;
  {
    ServedEngine served(SeeingConfig(), Generous());
    RawClient client(served.port());
    client.Send(RawClient::PostOf(LargeBody(20)));
    ASSERT_TRUE(Eventually([&] { return (num_decoded = NumDecoded(served)) > 0; }));
  }
  EXPECT_LT(num_decoded, 20 * kPixels);
}

}  // namespace
}  // namespace kuiper
