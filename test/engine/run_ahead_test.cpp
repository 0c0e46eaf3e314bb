// Asynchronous scheduling: steps scheduled before the tokens of the previous step are known.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <limits>
#include <map>
#include <random>

#include "kuiper/engine/scheduler.h"
#include "test/engine/engine_test_util.h"
#include "test/engine/scheduler_test_util.h"
#include "test/test_data.h"

namespace kuiper {
namespace {

std::unique_ptr<Sequence> MakeSequence(int64_t id, int prompt, int max_new) {
  auto seq = std::make_unique<Sequence>();
  seq->id = id;
  for (int i = 0; i < prompt; ++i) seq->tokens.push_back(i % 7);
  seq->num_prompt = prompt;
  seq->max_new_tokens = max_new;
  return seq;
}

std::vector<Scheduler::Outcome> Tokens(const StepPlan& plan, int32_t token) {
  return test::Outcomes(plan, [token](const auto&) { return token; });
}

TEST(ScheduleAheadTest, DecodesTheTokenThatIsStillBeingSampled) {
  BlockPool pool(17, 4);
  Scheduler scheduler({.max_seqs = 1, .max_step_tokens = 64, .max_context = 64}, pool, nullptr);
  ASSERT_TRUE(scheduler.Add(MakeSequence(1, 4, 8)).ok());
  const StepPlan prompt = scheduler.Schedule().plan;
  const StepPlan ahead = scheduler.Schedule(true).plan;
  const Sequence& seq = *scheduler.Find(1);
  ASSERT_EQ(ahead.entries.size(), 1u);
  EXPECT_EQ(ahead.entries[0].begin, 4);
  EXPECT_EQ(ahead.entries[0].num_tokens(), 1);
  EXPECT_TRUE(ahead.samples.size() == 1 && ahead.decode_only());
  EXPECT_EQ(seq.num_pending, 2);
  EXPECT_EQ(seq.num_tokens(), 6);
  EXPECT_EQ(seq.num_known(), 4);
  ASSERT_FALSE(ahead.tokens[0].is_known());
  EXPECT_EQ(ahead.tokens[0].row(), 0);
  EXPECT_EQ(seq.pages.size(), 2u) << "the first token of a page needs the page";
  scheduler.Commit(prompt, Tokens(prompt, 70));
  EXPECT_EQ(seq.num_known(), 5);
  EXPECT_EQ(seq.tokens[4], 70);
  EXPECT_EQ(seq.num_pending, 1);
  scheduler.Commit(ahead, Tokens(ahead, 71));
  EXPECT_EQ(seq.num_pending, 0);
  EXPECT_EQ(seq.tokens[5], 71);
  EXPECT_EQ(seq.num_computed, 5);
}

// The end is discovered while the next step is in flight: its token is dropped, and the prefix
// cache gets only computed, known tokens.
TEST(ScheduleAheadTest, SequenceThatEndedOneStepAgoLeavesKnownTokensOnly) {
  for (const int prompt : {6, 7, 8}) {  // the last known token ends before, on, and after a page
    BlockPool pool(17, 4);
    const auto reuse = MakePageReuse(pool, 64);
    Scheduler scheduler({.max_seqs = 1, .max_step_tokens = 64, .max_context = 64}, pool,
                        reuse.get());
    ASSERT_TRUE(scheduler.Add(MakeSequence(1, prompt, 8)).ok());
    std::deque<StepPlan> plans;
    for (const bool is_ahead : {false, true}) {
      plans.push_back(scheduler.Schedule(is_ahead).plan);
      scheduler.Launched(plans.back());
    }
    scheduler.Commit(plans.front(), Tokens(plans.front(), 70));
    plans.pop_front();
    const auto ended = scheduler.Finish(1);
    EXPECT_EQ(ended->num_tokens(), prompt + 1);
    EXPECT_EQ(ended->tokens.back(), 70);
    scheduler.Commit(plans.front(), Tokens(plans.front(), 71));
    EXPECT_EQ(pool.num_free() + reuse->num_evictable(), 16);
    std::vector<int32_t> longer = ended->tokens;
    longer.insert(longer.end(), {1, 2, 3, 4, 5});
    const auto match = reuse->Acquire(test::Keys(longer), static_cast<int>(longer.size()));
    EXPECT_EQ(match.num_tokens, (prompt + 1) / 4 * 4);
    for (const int32_t page : match.pages) pool.Release(page);
  }
}

TEST(ScheduleAheadTest, FailedTokenTakesTheStepAheadBackWithIt) {
  BlockPool pool(17, 4);
  Scheduler scheduler({.max_seqs = 1, .max_step_tokens = 64, .max_context = 64}, pool, nullptr);
  ASSERT_TRUE(scheduler.Add(MakeSequence(1, 4, 8)).ok());
  const StepPlan prompt = scheduler.Schedule().plan;
  scheduler.Schedule(true);
  scheduler.Commit(prompt, std::vector<Scheduler::Outcome>{Scheduler::Failed()});
  EXPECT_EQ(scheduler.Find(1)->num_tokens(), 4);
  EXPECT_EQ(scheduler.Find(1)->num_computed, 0);
  scheduler.Finish(1, false);
  EXPECT_EQ(pool.num_free(), 16);
}

// Random load one step ahead, with unexpected ends and aborts. Pages are conserved, no sequence
// writes beyond its reservation, and each gets the tokens of its steps in order.
TEST(ScheduleAheadTest, SoakOneStepAheadConservesPages) {
  std::mt19937 rng(11);
  constexpr int kPages = 30;
  BlockPool pool(kPages + 1, 4);
  const auto reuse = MakePageReuse(pool, 80);
  Scheduler scheduler({.max_seqs = 6, .max_step_tokens = 16, .max_context = 100}, pool,
                      reuse.get());
  std::map<int64_t, int> limit;  // id -> max_new_tokens
  std::deque<StepPlan> plans;
  int64_t next_id = 1;
  int32_t step_no = 0;
  int finished = 0, ahead = 0;
  bool settle = false;
  const auto end = [&](int64_t id) {
    ASSERT_NE(scheduler.Finish(id), nullptr);
    limit.erase(id);
    ++finished;
  };
  const auto schedule = [&] {
    Scheduler::Step step = scheduler.Schedule(!plans.empty());
    ASSERT_TRUE(step.out_of_pages.empty());
    settle = step.must_not_run_ahead;
    for (const auto& entry : step.plan.entries) {
      const Sequence& seq = *scheduler.Find(entry.sequence);
      ASSERT_LE(entry.end(), static_cast<int>(seq.pages.size()) * 4);
      ASSERT_LE(static_cast<int>(seq.pages.size()), seq.max_pages);
      for (int pos = entry.begin; pos < entry.end(); ++pos) {
        ASSERT_EQ(pool.ref_count(seq.pages[pos / 4]), 1) << "a shared page is written";
      }
    }
    scheduler.Launched(step.plan);
    if (!step.plan.entries.empty()) plans.push_back(std::move(step.plan));
  };
  for (; step_no < 5000; ++step_no) {
    if (limit.size() < 12 && rng() % 3 == 0) {
      const int max_new = 1 + static_cast<int>(rng() % 30);
      ASSERT_TRUE(
          scheduler.Add(MakeSequence(next_id, 1 + static_cast<int>(rng() % 60), max_new)).ok());
      limit[next_id++] = max_new;
    }
    if (!limit.empty() && rng() % 50 == 0)
      end(std::next(limit.begin(), rng() % limit.size())->first);
    if (plans.empty()) schedule();
    if (plans.empty()) continue;
    bool foreseen_end = false;
    for (const auto& entry : plans.back().entries) {
      const Sequence* seq = scheduler.Find(entry.sequence);
      foreseen_end |=
          seq != nullptr && !entry.samples.empty() && seq->num_generated() >= limit.at(seq->id);
    }
    if (!foreseen_end && !settle) {
      ++ahead;
      schedule();
    }
    const StepPlan done = std::move(plans.front());
    plans.pop_front();
    scheduler.Commit(done, Tokens(done, 1000 + step_no % 3));
    for (const auto& entry : done.entries) {
      if (scheduler.Find(entry.sequence) == nullptr || entry.samples.empty()) continue;
      const Sequence& seq = *scheduler.Find(entry.sequence);
      ASSERT_EQ(seq.num_known(), entry.end() + 1);
      ASSERT_EQ(seq.tokens[entry.end()], 1000 + step_no % 3);
      const bool last = seq.num_known() - seq.num_prompt >= limit.at(seq.id);
      if (last || rng() % 20 == 0) end(seq.id);
    }
    pool.CheckInvariants();
  }
  EXPECT_GT(finished, 200);
  EXPECT_GT(ahead, 1500);
  EXPECT_GT(scheduler.stats().preempted_recompute, 10);
  while (!limit.empty()) end(limit.begin()->first);
  reuse->Clear();
  EXPECT_EQ(pool.num_free(), kPages);
}

// --- whole engines ----------------------------------------------------------------------------

EngineConfig Config(bool run_ahead) {
  EngineConfig config = GoldenConfig();
  config.ops.num_threads = 1;
  config.max_context = 128;
  config.run_ahead = run_ahead;
  return config;
}

Request MakeRequest(std::vector<int32_t> prompt, int new_tokens) {
  Request request;
  request.prompt = std::move(prompt);
  request.max_new_tokens = new_tokens;
  request.ignore_eos = true;
  return request;
}

// A mixture of everything that affects the decision to run ahead: greedy and random sampling,
// penalties, kept logits, one token only, ends at eos and at the limit.
std::vector<Request> Mixture(int vocab) {
  std::vector<Request> requests;
  const int lengths[] = {1, 7, 8, 9, 25, 40, 3, 16, 17, 33};
  for (int i = 0; i < 10; ++i) {
    requests.push_back(MakeRequest(Prompt(lengths[i], vocab, i + 1), i == 3 ? 1 : 4 + 3 * i));
    requests.back().ignore_eos = i % 2 == 0;
    requests.back().sampling.temperature = i % 3 == 0 ? 0.f : 0.9f;
    requests.back().sampling.seed = i;
    if (i == 4) requests.back().sampling.repetition_penalty = 1.3f;
    if (i == 6) requests.back().keep_logits = true;
    if (i == 8) requests.back().num_logprobs = 2;
  }
  return requests;
}

// Requests arrive while others run; every token is reported once and in order.
std::vector<Completion> RunMixture(const EngineConfig& config) {
  const auto engine = Create(config);
  if (engine == nullptr) return {};
  std::vector<int64_t> ids;
  std::map<int64_t, std::vector<int32_t>> reported;
  std::map<int64_t, int> ends;
  const auto step = [&] {
    for (const TokenEvent& event : engine->Step()) {
      reported[event.request].push_back(*event.token);
      ends[event.request] += event.finish != FinishReason::kNone;
    }
  };
  for (const Request& request : Mixture(Vocab(*engine))) {
    ids.push_back(engine->Add(request).value());
    step();
  }
  while (engine->HasWork()) step();
  std::vector<Completion> completions;
  for (const int64_t id : ids) {
    completions.push_back(engine->Take(id).value());
    EXPECT_EQ(reported[id], completions.back().tokens);
    EXPECT_EQ(ends[id], 1);
  }
  EXPECT_EQ(engine->kv_stats().pages_used, engine->kv_stats().pages_evictable);
  return completions;
}

TEST(RunAheadTest, GivesTheTokensAndBitsOfWaiting) {
  const auto free_run = Create(Config(false));
  const int32_t eos = RunToEnd(*free_run, Mixture(Vocab(*free_run))[5]).tokens[6];
  const test::TempDir model;
  CopyWithEos(Config(false).model_path, {eos}, model);
  for (const bool paged : {false, true}) {
    for (const bool graph : {false, true}) {
      for (const int page_size : {1, 8}) {
        if (!paged && page_size != 8) continue;
        EngineConfig config = Config(false);
        config.model_path = model.path();
        config.paged = paged;
        config.page_size = page_size;
        config.use_graph = graph;
        config.prefix_cache = graph;
        config.max_num_seqs = 4;
        config.max_num_batched_tokens = 20;
        const std::vector<Completion> waited = RunMixture(config);
        config.run_ahead = true;
        const std::vector<Completion> ahead = RunMixture(config);
        ASSERT_EQ(waited.size(), ahead.size());
        int stopped = 0;
        for (size_t i = 0; i < waited.size(); ++i) {
          EXPECT_EQ(ahead[i].tokens, waited[i].tokens) << i;
          EXPECT_EQ(ahead[i].finish, waited[i].finish) << i;
          EXPECT_EQ(ahead[i].logits, waited[i].logits) << i;
          EXPECT_EQ(ahead[i].logprobs.size(), waited[i].logprobs.size()) << i;
          stopped += ahead[i].finish == FinishReason::kStop;
        }
        EXPECT_GT(stopped, 0) << "no request ended one step late";
      }
    }
  }
}

// A penalty depends on the previous token, so no step is launched without that token.
TEST(RunAheadTest, PenaltiesCountTheTokenBefore) {
  const auto waiting = Create(Config(false)), ahead = Create(Config(true));
  ASSERT_TRUE(waiting != nullptr && ahead != nullptr);
  const Request request = MakeRequest({1, 2, 3}, 40);
  const std::vector<int32_t> plain = RunToEnd(*waiting, request).tokens;
  for (float SamplingParams::*penalty :
       {&SamplingParams::repetition_penalty, &SamplingParams::presence_penalty,
        &SamplingParams::frequency_penalty}) {
    Request penalised = request;
    penalised.sampling.*penalty = 2.f;
    const Completion expected = RunToEnd(*waiting, penalised);
    EXPECT_NE(expected.tokens, plain) << "the penalty must matter";
    EXPECT_EQ(RunToEnd(*ahead, penalised).tokens, expected.tokens);
  }
}

TEST(RunAheadTest, PoolThatEndsTheAnswerDoesSoAtTheSameToken) {
  for (const bool ahead : {false, true}) {
    EngineConfig config = Config(ahead);
    config.num_blocks = 2;
    const auto engine = Create(config);
    ASSERT_NE(engine, nullptr);
    const Completion c = RunToEnd(*engine, MakeRequest(Prompt(20, Vocab(*engine)), 100));
    EXPECT_EQ(c.finish, FinishReason::kContext);
    EXPECT_EQ(c.error.message(), "KV cache is full (2/2 blocks, 32 tokens) after 13 tokens");
    EXPECT_EQ(c.tokens.size(), 13u);
  }
}

TEST(RunAheadTest, AbortDropsTheTokenInFlight) {
  EngineConfig config = Config(true);
  config.max_num_seqs = 2;
  const auto engine = Create(config);
  ASSERT_NE(engine, nullptr);
  const Request other = MakeRequest(Prompt(7, Vocab(*engine), 2), 10);
  const std::vector<int32_t> alone = RunToEnd(*engine, other).tokens;
  const int64_t a = engine->Add(MakeRequest(Prompt(5, Vocab(*engine)), 50)).value();
  const int64_t b = engine->Add(other).value();
  for (int i = 0; i < 3; ++i) engine->Step();
  engine->Abort(a);
  while (engine->HasWork()) engine->Step();
  EXPECT_EQ(engine->Take(a).value().tokens.size(), 3u);
  EXPECT_EQ(engine->Take(b).value().tokens, alone);
  // A step without live sequences is in flight: the next request starts with a step of its own.
  const int64_t c = engine->Add(MakeRequest(Prompt(5, Vocab(*engine)), 50)).value();
  engine->Step();
  engine->Abort(c);
  engine->Step();
  EXPECT_FALSE(engine->HasWork());
  const int64_t d = engine->Add(other).value();
  EXPECT_EQ(engine->Step().size(), 1u);
  while (engine->HasWork()) engine->Step();
  EXPECT_EQ(engine->Take(d).value().tokens, alone);
}

// Copies the model at `path` into the empty `dir`, with a NaN in the embedding of a token.
void CopyWithNan(const std::string& path, int32_t token, int hidden, const test::TempDir& dir) {
  std::filesystem::copy(path, dir.path());
  std::string bytes = test::ReadFile(dir / "model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof(header));
  const std::string json = bytes.substr(8, header);
  const std::string key = "\"data_offsets\":[";
  const size_t entry = json.find("\"model.embed_tokens.weight\"");
  ASSERT_NE(entry, std::string::npos);
  const size_t table = 8 + header + std::stoul(json.substr(json.find(key, entry) + key.size()));
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(&bytes[table + token * hidden * sizeof(float)], &nan, sizeof(nan));
  test::WriteFile(dir / "model.safetensors", bytes);
}

// A request with a broken token, in its prompt or among its generated tokens, fails. Requests in
// the same steps, whose next step is in flight at that time, continue as if they were alone.
TEST(RunAheadTest, FailureOfOneRequestLeavesTheOthersAsTheyWere) {
  EngineConfig config = Config(true);
  // Not tied: the LM head must stay finite.
  config.model_path = test::Source("test/data/goldens/qwen3-gqa2-d64-long-f32");
  config.max_num_seqs = 4;
  const auto healthy = Create(config);
  ASSERT_NE(healthy, nullptr);
  const int hidden = healthy->model_config().decoder.hidden;
  const auto has = [](const std::vector<int32_t>& ids, int32_t id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  for (const bool in_prompt : {true, false}) {
    for (const size_t place : {0, 1, 2}) {  // index of the failing one among three
      std::vector<Request> requests;
      std::vector<std::vector<int32_t>> alone;
      for (int i = 0; i < 3; ++i) {
        requests.push_back(MakeRequest(Prompt(9, Vocab(*healthy), 20 + i), 12));
        requests.back().sampling.temperature = 1.f;
        requests.back().sampling.seed = i;
        alone.push_back(RunToEnd(*healthy, requests.back()).tokens);
      }
      // An id that no other request contains.
      const std::vector<int32_t>& ids = in_prompt ? requests[place].prompt : alone[place];
      size_t index = in_prompt ? 0 : 2;
      const auto is_met_by_others = [&](int32_t id) {
        for (size_t i = 0; i < 3; ++i) {
          const bool meets = has(requests[i].prompt, id) || has(alone[i], id);
          if (meets && (i != place || (!in_prompt && has(requests[i].prompt, id)))) return true;
        }
        return false;
      };
      while (index < ids.size() && is_met_by_others(ids[index])) ++index;
      ASSERT_LT(index, ids.size() - 2) << "another seed is needed";
      const size_t first = std::find(ids.begin(), ids.end(), ids[index]) - ids.begin();
      const test::TempDir dir;
      CopyWithNan(config.model_path, ids[index], hidden, dir);

      EngineConfig broken = config;
      broken.model_path = dir.path();
      const auto engine = Create(broken);
      ASSERT_NE(engine, nullptr);
      std::vector<int64_t> added;
      for (const Request& request : requests) added.push_back(engine->Add(request).value());
      while (engine->HasWork()) engine->Step();
      for (size_t i = 0; i < 3; ++i) {
        const Completion c = engine->Take(added[i]).value();
        if (i != place) {
          EXPECT_EQ(c.tokens, alone[i]) << i << " beside " << place;
          continue;
        }
        EXPECT_EQ(c.finish, FinishReason::kError);
        EXPECT_EQ(c.error.message(), "model produced NaN at token " +
                                         std::to_string(in_prompt ? 0 : first + 1) +
                                         " (layer scan: first bad layer 0)");
      }
      EXPECT_EQ(engine->kv_stats().pages_used, 0);
    }
  }
}

}  // namespace
}  // namespace kuiper
