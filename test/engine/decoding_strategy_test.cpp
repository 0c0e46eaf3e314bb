// Answering classes that the engine does not have, run by the engine's own loop.
#include "kuiper/engine/decoding_strategy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <utility>

#include "kuiper/engine/engine_parts.h"
#include "kuiper/engine/logprobs.h"
#include "test/engine/engine_test_util.h"

namespace kuiper {
namespace {

// Answers with sequences of `length` tokens each; subclasses define how sequences are used.
class HandMade : public DecodingStrategy {
 public:
  HandMade(AnswerContext& context, int64_t id, const Request& request, int64_t first, size_t length)
      : context_(context),
        id_(id),
        request_(request),
        length_(length),
        sequences_{first},
        answers_(1) {}

  void OnLaunch(int64_t) override { ++num_launched_; }
  bool MayRunAhead(int64_t) const override { return false; }
  void OnTokens(int64_t sequence, std::span<const int32_t> tokens) override {
    Completion& answer = answers_.at(IndexOf(sequence));
    answer.tokens.insert(answer.tokens.end(), tokens.begin(), tokens.end());
    if (answer.tokens.size() == length_) End(sequence, FinishReason::kLength, OkStatus());
  }
  void End(int64_t sequence, FinishReason reason, const Status& error) override {
    const int sample = IndexOf(sequence);
    Completion& answer = answers_.at(sample);
    answer.finish = reason;
    answer.error = error;
    context_.scheduler.Finish(sequence);
    TokenEvent event;
    event.request = id_;
    event.sample = sample;
    event.finish = reason;
    context_.Finish(std::move(event), answer);
    ++num_ended_;
  }
  void Abort(std::optional<int>) override {
    for (const int64_t sequence : sequences_) {
      End(sequence, FinishReason::kInterrupt, OkStatus());
    }
  }
  std::optional<int64_t> SequenceOf(int sample) const override { return sequences_.at(sample); }
  bool done() const override { return num_ended_ == sequences_.size(); }

 protected:
  int IndexOf(int64_t sequence) const {
    return static_cast<int>(std::find(sequences_.begin(), sequences_.end(), sequence) -
                            sequences_.begin());
  }

  AnswerContext& context_;
  int64_t id_;
  Request request_;
  size_t length_;
  std::vector<int64_t> sequences_;
  std::vector<Completion> answers_;
  size_t num_ended_ = 0;
  int num_launched_ = 0;
};

// After the prompt, the most likely token begins the first answer and the second most likely the
// second.
class ForksOnce : public HandMade {
 public:
  using HandMade::HandMade;
  std::vector<int32_t> Choose(const Sequence& sequence, std::span<const int32_t> sampled,
                              const Logits& logits) override {
    EXPECT_GT(num_launched_, 0);
    if (sequence.num_generated() > 1 || sequences_.size() > 1) return {sampled[0]};
    const auto best = MostLikely(logits(0), 2);
    EXPECT_EQ(best[0].first, sampled[0]);
    second_ = best[1].first;
    return {sampled[0]};
  }
  void OnTokens(int64_t sequence, std::span<const int32_t> tokens) override {
    if (sequences_.size() == 1) {
      sequences_.push_back(context_.NewSequences(1));
      answers_.emplace_back().tokens = {second_};
      auto child = context_.MakeSequence(AnswerRules(), request_, id_, sequences_[1]);
      child->tokens.push_back(second_);
      EXPECT_TRUE(context_.scheduler.Fork(sequence, std::move(child)).ok());
    }
    HandMade::OnTokens(sequence, tokens);
  }

 private:
  int32_t second_ = 0;
};

// A grammar that allows only even ids. It decides when the step is over; until then the sequence is
// paused.
class EvenIds : public HandMade {
 public:
  using HandMade::HandMade;
  std::vector<int32_t> Choose(const Sequence&, std::span<const int32_t>,
                              const Logits& logits) override {
    const std::span<const float> row = logits(0);
    for (size_t id = 0; id < row.size(); id += 2) {
      if (id == 0 || row[id] > row[next_]) next_ = static_cast<int32_t>(id);
    }
    return {};
  }
  void OnPaused() override {
    context_.scheduler.Append(sequences_[0], next_);
    HandMade::OnTokens(sequences_[0], {&next_, 1});
  }

 private:
  int32_t next_ = 0;
};

EngineConfig Config() {
  EngineConfig config = GoldenConfig();
  config.page_size = 4;
  config.max_num_seqs = 4;
  return config;
}

std::unique_ptr<EngineParts> Parts(const EngineConfig& config) {
  auto parts = MakeEngineParts(config, OpenModel(config.model_path).value());
  EXPECT_TRUE(parts.ok()) << parts.status().message();
  return std::move(parts).value();
}

template <typename T>
int64_t Add(EngineParts& parts, const std::vector<int32_t>& prompt, size_t length) {
  Request request;
  request.prompt = prompt;
  const auto make = [&](AnswerContext& context, int64_t id, int64_t first) {
    return std::make_unique<T>(context, id, request, first, length);
  };
  return parts.requests->Add(request, make).value();
}

Request Greedy(const std::vector<int32_t>& prompt, int length) {
  Request request;
  request.prompt = prompt;
  request.max_new_tokens = length;
  request.ignore_eos = true;
  return request;
}

TEST(AnsweringTest, ForksAndFinishesBesideOtherRequests) {
  const auto alone = Create(Config());
  const auto parts = Parts(Config());
  for (const int length : {3, 4, 5, 13}) {
    const std::vector<int32_t> prompt = Prompt(length, Vocab(*alone));
    const int64_t id = Add<ForksOnce>(*parts, prompt, 6);
    const int64_t other = parts->requests->Add(Greedy(Prompt(7, Vocab(*alone), 2), 9)).value();
    std::map<int64_t, int> ends;
    while (!parts->requests->empty()) {
      parts->steps->Step();
      for (const TokenEvent& event : parts->requests->TakeEvents()) {
        ends[event.request] += event.finish != FinishReason::kNone;
      }
    }
    EXPECT_EQ(ends[id], 2);
    EXPECT_EQ(ends[other], 1);
    const Completion first = parts->requests->Take(id, 0).value();
    const Completion second = parts->requests->Take(id, 1).value();
    EXPECT_EQ(first.tokens, RunToEnd(*alone, Greedy(prompt, 6)).tokens);
    EXPECT_NE(second.tokens[0], first.tokens[0]);
    std::vector<int32_t> longer = prompt;
    longer.push_back(second.tokens[0]);
    std::vector<int32_t> expected = RunToEnd(*alone, Greedy(longer, 5)).tokens;
    expected.insert(expected.begin(), second.tokens[0]);
    EXPECT_EQ(second.tokens, expected);
    EXPECT_EQ(parts->requests->Take(other, 0)->tokens,
              RunToEnd(*alone, Greedy(Prompt(7, Vocab(*alone), 2), 9)).tokens);
    EXPECT_EQ(parts->storage->pool().num_used(), 0);
  }
}

TEST(AnsweringTest, ChoosesFromTheLogitsWhenTheStepIsOver) {
  EngineConfig config = Config();
  const auto parts = Parts(config);
  config.prompt_logits = true;
  const auto naive = Create(config);
  std::vector<int32_t> text = Prompt(5, Vocab(*naive));
  const int64_t id = Add<EvenIds>(*parts, text, 8);
  while (!parts->requests->empty()) parts->steps->Step();
  std::vector<int32_t> expected;
  for (int i = 0; i < 8; ++i) {
    int32_t best = 0;
    const auto last = [&](int position, const float* logits) {
      if (position + 1 < static_cast<int>(text.size())) return;
      for (int32_t even = 0; even < Vocab(*naive); even += 2) {
        if (logits[even] > logits[best]) best = even;
      }
    };
    ASSERT_TRUE(naive->Logits(text, last).ok());
    text.push_back(best);
    expected.push_back(best);
  }
  EXPECT_EQ(parts->requests->Take(id, 0)->tokens, expected);
}

TEST(AnsweringTest, AbortReachesIt) {
  const auto parts = Parts(Config());
  const int64_t id = Add<EvenIds>(*parts, {1, 2, 3}, 8);
  parts->steps->Step();
  parts->requests->Abort(id, std::nullopt);
  parts->steps->Step();
  EXPECT_TRUE(parts->requests->empty());
  EXPECT_EQ(parts->requests->Take(id, 0)->finish, FinishReason::kInterrupt);
  EXPECT_EQ(parts->storage->pool().num_used(), 0);
}

// A caller's mistake makes only the call fail and affects no other request.
TEST(EngineCallsTest, MistakesAreErrors) {
  const auto engine = Create(Config());
  const auto bad = StatusCode::kInvalidArgument;
  const auto ignore = [](int, const float*) {};
  EXPECT_EQ(engine->Take(1).status().code(), bad) << "no such request";
  EXPECT_EQ(engine->block_table(1).status().code(), bad);
  EXPECT_EQ(engine->Logits({1, 2}, ignore).code(), bad) << "no memory for the logits";
  const int64_t id = engine->Add(Greedy(Prompt(5, Vocab(*engine)), 3)).value();
  EXPECT_EQ(engine->block_table(id)->size(), 0u) << "it waits";
  engine->Step();
  EXPECT_EQ(engine->block_table(id)->size(), 2u);
  EXPECT_EQ(engine->block_table(id, 1).status().code(), bad) << "one sample";
  EXPECT_EQ(engine->Take(id).status().code(), bad) << "not finished";
  EXPECT_EQ(engine->Generate(Greedy({1, 2}, 3)).status().code(), bad) << "not alone";
  while (engine->HasWork()) engine->Step();
  EXPECT_EQ(engine->Take(id, 1).status().code(), bad);
  const std::vector<int32_t> table = engine->block_table(id).value();
  EXPECT_EQ(table.size(), 2u);
  EXPECT_EQ(engine->Take(id)->pages, table);
  EXPECT_EQ(engine->Take(id).status().code(), bad) << "taken twice";
  EXPECT_EQ(engine->block_table(id).status().code(), bad);
  EXPECT_EQ(engine->Generate(Greedy(Prompt(5, Vocab(*engine)), 3))->tokens.size(), 3u);
  EngineConfig config = Config();
  config.prompt_logits = true;
  const auto reader = Create(config);
  reader->Add(Greedy({1, 2}, 3)).value();
  EXPECT_EQ(reader->Logits({1, 2}, ignore).code(), bad) << "not alone";
}

// Whole steps may precede the first wanted row.
TEST(EngineCallsTest, LogitsFromAPositionAreThoseOfTheWholePrompt) {
  EngineConfig config = Config();
  config.prompt_logits = true;
  config.max_num_batched_tokens = 4;
  const auto engine = Create(config);
  const std::vector<int32_t> prompt = Prompt(11, Vocab(*engine));
  const auto rows = [&](int first) {
    std::vector<std::pair<int, std::vector<float>>> found;
    const auto keep = [&](int position, const float* logits) {
      found.emplace_back(position, std::vector<float>(logits, logits + Vocab(*engine)));
    };
    EXPECT_TRUE(engine->Logits(prompt, keep, first).ok());
    return found;
  };
  const auto whole = rows(0);
  ASSERT_EQ(whole.size(), 11u);
  for (const int first : {1, 3, 4, 5, 8, 10, 11}) {
    EXPECT_EQ(rows(first), decltype(whole)(whole.begin() + first, whole.end())) << first;
  }
}

}  // namespace
}  // namespace kuiper
