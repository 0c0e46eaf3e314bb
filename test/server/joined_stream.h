// Joins the events of a stream.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "test/server/served_engine.h"

namespace kuiper::test {

// The joined stream of a chat, with the fields of a complete response.
struct Whole {
  std::string text, reasoning, finish;
  std::vector<int32_t> ids;
  size_t num_logprobs = 0;
  nlohmann::json usage;
};

inline Whole Join(const std::string& body, int choice = 0) {
  using Json = nlohmann::json;
  Whole whole;
  const std::vector<Json> events = ServedEngine::Events(body);
  EXPECT_FALSE(events.empty()) << body;
  EXPECT_EQ(events.empty() ? Json() : events.back(), Json("[DONE]"));
  for (const Json& event : events) {
    if (!event.is_object()) continue;
    if (event.contains("usage") && event["choices"].empty()) whole.usage = event["usage"];
    for (const Json& item : event["choices"]) {
      if (item["index"] != choice) continue;
      const Json delta = item.value("delta", Json::object());
      whole.text += item.contains("text") ? item["text"].get<std::string>()
                                          : delta.value("content", std::string());
      whole.reasoning += delta.value("reasoning_content", std::string());
      if (!item["finish_reason"].is_null()) whole.finish = item["finish_reason"];
      for (const Json& id : item.value("token_ids", Json::array())) whole.ids.push_back(id);
      if (!item["logprobs"].is_null()) whole.num_logprobs += item["logprobs"]["content"].size();
    }
  }
  return whole;
}

}  // namespace kuiper::test
