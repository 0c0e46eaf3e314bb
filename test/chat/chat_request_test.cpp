#include "kuiper/chat/chat_request.h"

#include <gtest/gtest.h>

namespace kuiper {
namespace {

std::string InBody(std::string_view name) {
  return "body." + std::string(name);
}

StatusOr<ChatRequest> Parse(const std::string& body, const Request& defaults = {}) {
  const auto json = ParseJson(body, StatusCode::kInput, "body");
  if (!json.ok()) return json.status();
  return ParseChatRequest(*json, json->Find("messages") != nullptr, defaults);
}
std::string Error(const std::string& fields) {
  const auto request = Parse(R"({"messages": [{"role": "user", "content": "x"}], )" + fields + "}");
  EXPECT_FALSE(request.ok()) << fields;
  EXPECT_EQ(request.status().code(), StatusCode::kInput);
  return request.status().message(InBody);
}

TEST(ChatRequest, ParametersReplaceTheDefaults) {
  Request defaults;
  defaults.max_new_tokens = 9;
  defaults.stop = {"d"};
  defaults.sampling.top_k = 3;
  const auto request = Parse(
      R"({"messages": [{"role": "user", "content": "x"}], "temperature": 0.5, "seed": 7, "n": 2,
          "stop": ["a", "b"], "ignore_eos": true, "top_k": null, "reasoning_budget": 4,
          "max_tokens": 5, "max_completion_tokens": 6, "model": "m", "user": "u"})",
      defaults);
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_TRUE(request->is_chat);
  EXPECT_EQ(request->messages.messages.size(), 1u);
  const Request& r = request->request;
  EXPECT_EQ(r.sampling.temperature, 0.5f);
  EXPECT_EQ(r.sampling.seed, 7u);
  EXPECT_EQ(r.sampling.top_k, 3) << "null is left out";
  EXPECT_EQ(r.num_samples, 2);
  EXPECT_EQ(r.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(r.ignore_eos);
  EXPECT_EQ(r.reasoning_budget, 4);
  EXPECT_EQ(r.max_new_tokens, 6);
  EXPECT_EQ(Parse(R"({"prompt": "p"})", defaults)->request.stop, defaults.stop);
  const auto automatic = Parse(R"({"prompt": "p", "reasoning_budget": "auto"})", defaults);
  ASSERT_TRUE(automatic.ok()) << automatic.status().message();
  EXPECT_EQ(automatic->request.reasoning_budget, kAutoReasoningBudget);
}

// vLLM's -1 switches a limit off; a negative seed asks for a random one.
TEST(ChatRequest, NegativeNumbersSwitchOffAndDraw) {
  const auto request = Parse(R"({"prompt": "p", "top_k": -1, "seed": -7})", {});
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_EQ(request->request.sampling.top_k, -1);
  EXPECT_EQ(request->request.sampling.seed, kRandomSeed);
  EXPECT_EQ(Error(R"("top_k": -2)"),
            "body.top_k: -2 is out of range (must be at least -1 and at most 2147483647)");
}

TEST(ChatRequest, BiasesAndEndsOfTokens) {
  Request defaults;
  defaults.logit_bias = {{1, 1.f}};
  const auto request = Parse(
      R"({"prompt": "p", "logit_bias": {"7": -100, "3": 0.5}, "min_tokens": 4,
          "stop_token_ids": [3, 4]})",
      defaults);
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_EQ(request->request.logit_bias, (std::map<int32_t, float>{{3, 0.5f}, {7, -100.f}}));
  EXPECT_EQ(request->request.min_new_tokens, 4);
  EXPECT_EQ(request->request.stop_token_ids, (std::vector<int32_t>{3, 4}));
  EXPECT_EQ(Parse(R"({"prompt": "p"})", defaults)->request.logit_bias, defaults.logit_bias);
  EXPECT_TRUE(Parse(R"({"prompt": "p", "logit_bias": {}})", defaults)->request.logit_bias.empty());
  EXPECT_EQ(Error(R"("logit_bias": [1])"), "body.logit_bias is not an object");
  EXPECT_EQ(Error(R"("logit_bias": {"1": "2"})"),
            "body.logit_bias does not map token ids to numbers");
  EXPECT_EQ(Error(R"("logit_bias": {"1:2,3": 2})"),
            "body.logit_bias does not map token ids to numbers");
  EXPECT_EQ(Error(R"("logit_bias": {"a": 2})"), "body.logit_bias: 'a' is not a whole number");
  EXPECT_EQ(Error(R"("logit_bias": {"1": -100.5})"),
            "body.logit_bias: -100.5 is out of range (must be from -100 to 100)");
  EXPECT_EQ(Error(R"("min_tokens": -1)"),
            "body.min_tokens: -1 is out of range (must be at least 0 and at most 2147483647)");
  for (const char* ids : {"3", "[-1]", "[1.5]", "[\"a\"]", "{}"}) {
    EXPECT_EQ(Error(std::string(R"("stop_token_ids": )") + ids),
              "body.stop_token_ids is not a list of token ids");
  }
}

TEST(ChatRequest, PromptsAreTextOrTokens) {
  const auto text = Parse(R"({"prompt": "p"})");
  ASSERT_TRUE(text.ok());
  EXPECT_FALSE(text->is_chat);
  EXPECT_EQ(text->text, "p");
  EXPECT_EQ(Parse(R"({"prompt": [1, 2]})")->request.prompt, (std::vector<int32_t>{1, 2}));
  for (const char* prompt : {"[]", "[1, -1]", "[1.5]", "[2147483648]", "7", "null", "[[1]]"}) {
    const auto bad = Parse(std::string("{\"prompt\": ") + prompt + "}");
    ASSERT_FALSE(bad.ok()) << prompt;
    EXPECT_EQ(bad.status().message(InBody),
              "body.prompt is neither a string nor a list of token ids");
  }
  EXPECT_EQ(Parse(R"({"prompt": ""})").status().message(), "prompt is empty");
  for (const char* field : {"tools", "documents"}) {
    const std::string body = std::string(R"({"prompt": "p", ")") + field + "\": ";
    EXPECT_EQ(Parse(body + "[{}]}").status().message(),
              std::string(field) + " needs messages: a prompt is fed as it is");
    EXPECT_TRUE(Parse(body + "[]}").ok());
    EXPECT_TRUE(Parse(body + "null}").ok());
  }
}

// llama.cpp, Ollama and Hugging Face have other names for some parameters.
TEST(ChatRequest, ParametersHaveOtherNames) {
  const auto request = Parse(R"({"prompt": "p", "repeat_penalty": 1.5, "n_predict": 3,
                                 "add_special_tokens": false})",
                             {});
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_EQ(request->request.sampling.repetition_penalty, 1.5f);
  EXPECT_EQ(request->request.max_new_tokens, 3);
  EXPECT_FALSE(request->adds_bos);
  EXPECT_TRUE(Parse(R"({"prompt": "p", "repeat_penalty": 2, "repetition_penalty": 2})", {}).ok());
  EXPECT_EQ(Error(R"("repeat_penalty": 1.5, "repetition_penalty": 2)"),
            "body.repeat_penalty and body.repetition_penalty contradict each other");
  EXPECT_EQ(Error(R"("repeat_penalty": 0)"),
            "body.repeat_penalty: 0 is out of range (must be from 0.01 to 100)");
}

TEST(ChatRequest, FieldsThatAskForNothingAreTaken) {
  for (const char* fields :
       {R"("best_of": 1)", R"("best_of": 3, "n": 3)", R"("length_penalty": 1)",
        R"("any_name": false, "another": 0, "more": [], "and": {}, "so": "", "on": null)",
        R"("metadata": {"a": "b"}, "store": false, "user": "u")"}) {
    const auto request = Parse(std::string(R"({"prompt": "p", )") + fields + "}", {});
    EXPECT_TRUE(request.ok()) << fields << ": " << request.status().message();
  }
  EXPECT_EQ(Error(R"("temprature": 0)"),
            "body.temprature is not available; did you mean temperature?")
      << "it was meant to ask for greedy answers";
}

TEST(ChatRequest, MistakesNameTheField) {
  EXPECT_EQ(Error(R"("temperature": "hot")"), "body.temperature is not a number");
  EXPECT_EQ(Error(R"("temperature": 101)"),
            "body.temperature: 101 is out of range (must be from 0 to 100)");
  EXPECT_EQ(Error(R"("top_k": 1.5)"), "body.top_k: '1.5' is not a whole number");
  EXPECT_EQ(Error(R"("max_completion_tokens": 0)"),
            "body.max_completion_tokens: 0 is out of range (must be at least 1 and at most "
            "2147483647, or -1 for no limit)");
  EXPECT_EQ(Error(R"("reasoning_budget": "5")"), "body.reasoning_budget is not a number");
  EXPECT_EQ(Error(R"("max_tokens": "auto")"), "body.max_tokens is not a number");
  EXPECT_EQ(Error(R"("ignore_eos": 1)"), "body.ignore_eos is not true or false");
  EXPECT_EQ(Error(R"("stop": ["a", 1])"), "body.stop is neither a string nor a list of strings");
  EXPECT_EQ(Error(R"("stop": "")"), "body.stop has an empty string");
  EXPECT_EQ(Error(R"("stop": ["a", ""])"), "body.stop has an empty string");
  EXPECT_EQ(Error(R"("n": 3, "beam_width": 2)"), "body.n must be at most body.beam_width");
  EXPECT_EQ(Error(R"("length_penalty": 2)"), "body.length_penalty needs a body.beam_width above 1");
  EXPECT_EQ(Error(R"("tool_choice": "none")"), "body.tool_choice must be \"auto\"");
  EXPECT_EQ(Error(R"("stream": true)"), "body.stream must be false");
  EXPECT_EQ(Error(R"("max_token": 1)"),
            "body.max_token is not available; did you mean max_tokens?");
  EXPECT_EQ(Error(R"("temp": 1)"), "body.temp is not available; did you mean temperature?");
  for (const char* field : {"logprobs", "num_samples", "a\\tb"}) {
    std::string name = field;
    if (name == "a\\tb") name = "a b";
    EXPECT_EQ(Error(std::string("\"") + field + "\": 1"), InBody(name) + " is not available");
  }
}

}  // namespace
}  // namespace kuiper
