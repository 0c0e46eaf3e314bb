#include "kuiper/server/api_request.h"

#include <gtest/gtest.h>

namespace kuiper {
namespace {

StatusOr<ApiRequest> Parse(const std::string& body, bool is_chat = true) {
  auto json = ParseJson(body, StatusCode::kInput, "body");
  if (!json.ok()) return json.status();
  return ParseApiRequest(std::move(*json), is_chat, {});
}

std::string Chat(const std::string& fields) {
  return R"({"messages": [{"role": "user", "content": "x"}])" +
         std::string(fields.empty() ? "" : ", ") + fields + "}";
}

ApiRequest Good(const std::string& body, bool is_chat = true) {
  auto request = Parse(body, is_chat);
  EXPECT_TRUE(request.ok()) << body << ": " << request.status().message();
  ApiRequest none;
  none.prompts.emplace_back();
  return request.ok() ? std::move(*request) : none;
}

TEST(ApiRequest, FieldsOfStreams) {
  const ApiRequest plain = Good(Chat(""));
  EXPECT_FALSE(plain.stream);
  EXPECT_FALSE(plain.has_max_tokens);
  const ApiRequest request = Good(Chat(
      R"("stream": true, "stream_options": {"include_usage": true, "continuous_usage_stats": true},
         "max_completion_tokens": 3, "return_token_ids": true, "include_reasoning": false)"));
  EXPECT_TRUE(request.stream && request.include_usage && request.continuous_usage);
  EXPECT_TRUE(request.has_max_tokens && request.return_token_ids);
  EXPECT_FALSE(request.include_reasoning);
  EXPECT_EQ(request.parameters().max_new_tokens, 3);
}

TEST(ApiRequest, LogprobsOfChatsAndCompletions) {
  ApiRequest request = Good(Chat(R"("logprobs": true)"));
  EXPECT_TRUE(request.wants_logprobs);
  EXPECT_EQ(request.top_logprobs, 0);
  EXPECT_EQ(request.parameters().num_logprobs, 1);
  request = Good(Chat(R"("logprobs": true, "top_logprobs": 5)"));
  EXPECT_EQ(request.parameters().num_logprobs, 5);
  request = Good(R"({"prompt": "x", "logprobs": 0})", false);
  EXPECT_TRUE(request.wants_logprobs);
  EXPECT_FALSE(Good(R"({"prompt": "x", "echo": true})", false).wants_logprobs);
  const auto of_prompt = [](const std::string& fields) {
    return Good(R"({"prompt": "x", )" + fields + "}", false).parameters().num_prompt_logprobs;
  };
  EXPECT_EQ(of_prompt(R"("echo": true)"), std::nullopt);
  EXPECT_EQ(of_prompt(R"("logprobs": 2)"), std::nullopt);
  EXPECT_EQ(of_prompt(R"("echo": true, "logprobs": 0)"), 0);
  EXPECT_EQ(of_prompt(R"("echo": true, "logprobs": 2)"), 2);
  EXPECT_EQ(of_prompt(R"("echo": true, "logprobs": 2, "prompt_logprobs": 3)"), 3);
  EXPECT_EQ(
      Good(R"({"prompt": "x", "echo": true, "max_tokens": 0})", false).parameters().max_new_tokens,
      0);
  request = Good(Chat(R"("logit_bias": {"5": -100, "7": 2.5}, "min_tokens": 3)"));
  EXPECT_EQ(request.parameters().logit_bias, (std::map<int32_t, float>{{5, -100.f}, {7, 2.5f}}));
  EXPECT_EQ(request.parameters().min_new_tokens, 3);
}

TEST(ApiRequest, SeveralPrompts) {
  const ApiRequest texts = Good(R"({"prompt": ["a", "b"], "n": 2})", false);
  ASSERT_EQ(texts.prompts.size(), 2u);
  EXPECT_EQ(texts.prompts[1].text, "b");
  EXPECT_EQ(texts.prompts[1].request.num_samples, 2);
  const ApiRequest ids = Good(R"({"prompt": [[1, 2], [3]]})", false);
  ASSERT_EQ(ids.prompts.size(), 2u);
  EXPECT_EQ(ids.prompts[1].request.prompt, (std::vector<int32_t>{3}));
  EXPECT_EQ(Good(R"({"prompt": [1, 2]})", false).prompts.size(), 1u);
}

TEST(ApiRequest, ToolsAndTheirChoice) {
  const std::string tools =
      R"("tools": [{"type": "function", "function": {"name": "f", "parameters":
         {"properties": {"s": {"type": "string"}}}}}])";
  const ApiRequest request = Good(Chat(tools + R"(, "parallel_tool_calls": false)"));
  EXPECT_TRUE(request.reads_tool_calls);
  EXPECT_FALSE(request.parallel_tool_calls);
  EXPECT_EQ(request.string_parameters, (StringParameters{{"f", {{"s", StringKind::kAlways}}}}));
  EXPECT_EQ(request.prompts[0].messages.tools_json.size(), 1u);
  const ApiRequest none = Good(Chat(tools + R"(, "tool_choice": "none")"));
  EXPECT_FALSE(none.reads_tool_calls);
  EXPECT_TRUE(none.prompts[0].messages.tools_json.empty()) << "the prompt does not name them";
}

TEST(ApiRequest, ThinkingByAnyName) {
  const auto think = [](const std::string& fields) {
    return Good(Chat(fields)).prompts[0].messages.enable_thinking;
  };
  EXPECT_EQ(think(""), std::nullopt);
  EXPECT_EQ(think(R"("enable_thinking": false)"), false);
  EXPECT_EQ(think(R"("chat_template_kwargs": {"enable_thinking": true})"), true);
  EXPECT_EQ(think(R"("reasoning_effort": "none")"), false);
  EXPECT_EQ(think(R"("reasoning_effort": "high")"), std::nullopt);
  EXPECT_EQ(think(R"("reasoning_effort": "high", "enable_thinking": true)"), true);
  EXPECT_EQ(think(R"("reasoning_effort": "none", "enable_thinking": false)"), false);
  EXPECT_EQ(think(R"("thinking": {"type": "disabled"})"), false);
  EXPECT_EQ(think(R"("thinking": {"type": "enabled"})"), true);
  EXPECT_EQ(think(R"("thinking": {"type": "adaptive", "display": "omitted"})"), std::nullopt);
  EXPECT_EQ(think(R"("reasoning": {"effort": "none"})"), false);
  EXPECT_EQ(think(R"("reasoning": {"effort": "low", "summary": "auto"})"), std::nullopt);
  EXPECT_EQ(think(R"("reasoning": {"enabled": true})"), true);
  EXPECT_EQ(think(R"("think": false)"), false);
  EXPECT_EQ(think(R"("reasoning": false)"), false);
  EXPECT_EQ(think(R"("output_config": {"effort": "none"})"), false);
  EXPECT_EQ(think(R"("reasoning": {"enabled": null}, "enable_thinking": false)"), false);
  EXPECT_EQ(think(R"("enable_thinking": false, "chat_template_kwargs": {"enable_thinking": null})"),
            false);
  EXPECT_EQ(think(R"("think": "high")"), std::nullopt);
  EXPECT_EQ(think(R"("output_config": {"effort": "medium"})"), std::nullopt);
  const auto budget = [](const std::string& fields) {
    return Good(Chat(fields)).parameters().reasoning_budget;
  };
  EXPECT_EQ(budget(R"("thinking_token_budget": 7)"), 7);
  EXPECT_EQ(budget(R"("thinking": {"type": "enabled", "budget_tokens": 8})"), 8);
  EXPECT_EQ(budget(R"("reasoning": {"max_tokens": 9})"), 9);
  EXPECT_FALSE(Good(Chat(R"("reasoning": {"exclude": true})")).include_reasoning);
}

TEST(ApiRequest, CompletionsHaveSixteenTokensUnlessTheySayMore) {
  const auto tokens = [](const std::string& fields) {
    return Good(R"({"prompt": "x")" + fields + "}", false).parameters().max_new_tokens;
  };
  EXPECT_EQ(tokens(""), 16);
  EXPECT_EQ(tokens(R"(, "max_tokens": null)"), 16);
  EXPECT_EQ(tokens(R"(, "max_tokens": 5)"), 5);
  EXPECT_EQ(tokens(R"(, "n_predict": 6)"), 6);
  EXPECT_EQ(tokens(R"(, "max_tokens": -1)"), INT32_MAX);
}

TEST(ApiRequest, ToolsThatAreNoFunctionsAreDropped) {
  const std::string f = R"({"type": "function", "function": {"name": "f"}})",
                    g = R"({"type": "function", "function": {"name": "g"}})";
  const ApiRequest request = Good(
      Chat(R"("tools": [{"type": "web_search"}, )" + f + R"(, {"type": "custom", "name": "x"}])"));
  EXPECT_EQ(request.dropped_tools, (std::vector<std::string>{"web_search", "custom"}));
  EXPECT_EQ(request.prompts[0].messages.tools_json.size(), 1u);
  EXPECT_FALSE(Good(Chat(R"("tools": [{"type": "web_search"}])")).reads_tool_calls);
  const std::string allowed = R"("tools": [)" + f + ", " + g +
                              R"(], "tool_choice": {"type": "allowed_tools", "allowed_tools":)"
                              R"( {"mode": "auto", "tools": [)" +
                              g + "]}}";
  const std::vector<std::string> tools = Good(Chat(allowed)).prompts[0].messages.tools_json;
  ASSERT_EQ(tools.size(), 1u);
  EXPECT_NE(tools[0].find("\"g\""), std::string::npos);
  for (const char* choice :
       {R"({"type": "allowed_tools", "mode": "required", "tools": []})", R"({"type": "any"})"}) {
    EXPECT_EQ(Parse(Chat(R"("tools": [)" + f + R"(], "tool_choice": )" + choice)).status().code(),
              StatusCode::kUnavailable)
        << choice;
  }
}

TEST(ApiRequest, AnAnswerMayGoOnFromTheLastMessage) {
  const std::string messages =
      R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a")";
  EXPECT_FALSE(Good(messages + "}]}").prompts[0].messages.continue_final_message);
  for (const std::string rest :
       {R"(}], "continue_final_message": true})", R"(, "prefix": true}]})"}) {
    EXPECT_TRUE(Good(messages + rest).prompts[0].messages.continue_final_message) << rest;
  }
  const auto both =
      Parse(messages + R"(}], "continue_final_message": true, "add_generation_prompt": true})");
  EXPECT_EQ(both.status().code(), StatusCode::kInput);
}

TEST(ApiRequest, MessagesOfClientsAreUnderstood) {
  const ApiRequest request = Good(
      R"({"messages": [{"role": "developer", "content": "s"}, {"role": "user", "content": "x"},
          {"role": "assistant", "content": "y", "reasoning": "why", "refusal": null,
           "annotations": []},
          {"role": "user", "content": [{"type": "input_text", "text": "z"}, "!"], "id": "its own"}],
          "user": "u", "metadata": {"a": "b"}, "store": true, "cache_salt": "me",
          "stop_token_ids": [3, 4]})");
  const std::vector<Message>& messages = request.prompts[0].messages.messages;
  ASSERT_EQ(messages.size(), 4u);
  EXPECT_EQ(messages[0].role, Role::kSystem);
  EXPECT_EQ(messages[2].reasoning, "why");
  EXPECT_EQ(messages[2].source.Find("refusal"), nullptr);
  EXPECT_EQ(messages[3].text, "z!");
  EXPECT_EQ(request.parameters().cache_salt, "me");
  EXPECT_EQ(request.parameters().stop_token_ids, (std::vector<int32_t>{3, 4}));
}

TEST(ApiRequest, WhatIsNotDoneSaysSo) {
  for (const char* fields :
       {R"("response_format": {"type": "json_object"})", R"("tool_choice": "required")",
        R"("tool_choice": {"type": "function"})", R"("guided_json": {"a": 1})",
        R"("functions": [{}])"}) {
    const auto request = Parse(Chat(fields));
    ASSERT_FALSE(request.ok()) << fields;
    EXPECT_EQ(request.status().code(), StatusCode::kUnavailable) << fields;
  }
  // These fields ask for nothing.
  Good(Chat(R"("function_call": "auto", "functions": [], "stream_options": {}, "documents": [],
               "prompt": "")"));
  Good(Chat(R"("logit_bias": {}, "min_tokens": 0, "response_format": {"type": "text"},
               "tool_choice": "auto", "structured_outputs": null)"));
}

TEST(ApiRequest, WrongFieldsAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"("temprature": 1)", "temprature"},
      {R"("stream": 1)", "stream"},
      {R"("stream_options": {"include_usage": true})", "stream_options"},
      {R"("stream": true, "stream_options": {"x": true})", "stream_options.x"},
      {R"("top_logprobs": 2)", "top_logprobs"},
      {R"("logprobs": true, "top_logprobs": 21)", "top_logprobs"},
      {R"("logprobs": 1)", "logprobs"},
      {R"("temperature": "hot")", "temperature"},
      {R"("temperature": -1)", "temperature"},
      {R"("max_tokens": 0)", "max_tokens"},
      {R"("n": 0)", "n"},
      {R"("stop": [""])", "stop"},
      {R"("stop_token_ids": [-1])", "stop_token_ids"},
      {R"("tool_choice": "some")", "tool_choice"},
      {R"("reasoning_effort": "banana")", "reasoning_effort"},
      {R"("reasoning_effort": 1)", "reasoning_effort"},
      {R"("reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": true})",
       "reasoning_effort"},
      {R"("reasoning_effort": "none", "enable_thinking": true)", "reasoning_effort"},
      {R"("thinking": {"type": "disabled"}, "enable_thinking": true)", "thinking"},
      {R"("thinking": {"type": "perhaps"})", "thinking.type"},
      {R"("reasoning": {"effort": "banana"})", "reasoning.effort"},
      {R"("reasoning": {"what": 1})", "reasoning.what"},
      {R"("output_config": {"effort": "banana"})", "output_config.effort"},
      {R"("repeat_penalty": 0)", "repeat_penalty"},
      {R"("thinking_token_budget": 1, "reasoning_budget": 2)", "thinking_token_budget"},
      {R"("stop_sequences": ["a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a"])",
       "stop_sequences"},
      {R"("max_tokens": 5, "max_output_tokens": 6)", "max_output_tokens"},
      {R"("model": 3)", "model"},
      {R"("prompt": "x")", "prompt"},
  };
  for (const auto& [fields, name] : cases) {
    const auto request = Parse(Chat(fields));
    ASSERT_FALSE(request.ok()) << fields;
    EXPECT_EQ(request.status().code(), StatusCode::kInput) << fields;
    EXPECT_NE(request.status().message(Param).find(Param(name)), std::string::npos)
        << request.status().message();
  }
  EXPECT_FALSE(Parse("{}").ok());
  EXPECT_FALSE(Parse("[]").ok());
  EXPECT_FALSE(Parse(R"({"prompt": [1, "a"]})", false).ok());
  EXPECT_FALSE(Parse(R"({"messages": [{}], "prompt": "x"})", false).ok());
}

// SGLang's router adds these fields to each body.
TEST(ApiRequest, SwitchesOfRoutersAreTakenWhereTheyAskForWhatIsDone) {
  for (const auto& [name, usual] : {std::pair("no_stop_trim", false),
                                    {"return_hidden_states", false},
                                    {"skip_special_tokens", true},
                                    {"separate_reasoning", true},
                                    {"stream_reasoning", true}}) {
    for (const bool value : {false, true}) {
      const std::string fields = std::string("\"") + name + "\": " + (value ? "true" : "false");
      const auto request = Parse(Chat(fields));
      const StatusCode expected = value == usual ? StatusCode::kOk : StatusCode::kUnavailable;
      EXPECT_EQ(request.status().code(), expected) << fields;
    }
  }
  Good(R"({"prompt": "x", "echo": false, "no_stop_trim": false, "skip_special_tokens": true})",
       false);
}

}  // namespace
}  // namespace kuiper
