// What an Engine is made of. Private to engine*.cpp.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kuiper/engine/answer_stream.h"
#include "kuiper/engine/beam_scorer.h"
#include "kuiper/engine/engine.h"
#include "kuiper/engine/model_runner.h"
#include "kuiper/engine/scheduler.h"
#include "kuiper/kv/block_pool.h"
#include "kuiper/kv/reuse.h"
#include "kuiper/kv/swap_space.h"
#include "kuiper/model/model.h"

namespace kuiper {

using Clock = std::chrono::steady_clock;

inline double MillisecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

// What the beams of a request have in common. They advance together, when all are scored.
struct BeamSearch {
  using Likely = std::vector<std::pair<int32_t, float>>;

  BeamScorer scorer;
  // Per beam:
  std::vector<int64_t> ids;           // its sequence
  std::vector<Likely> likely;         // what may come next; empty: not scored yet
  std::vector<AnswerStream> streams;  // find stop strings
};

// One sample of a request that has not ended: sample i of request r is sequence r + i. Or a beam
// search, which has a sequence per beam.
struct ActiveRequest {
  ActiveRequest(Request r, const Tokenizer* tokenizer)
      : request(std::move(r)), stream(tokenizer, request) {}

  Request request;  // its seed is the sample's own
  AnswerStream stream;
  int64_t id = 0;  // what Add returned
  int sample = 0;
  // Of sample 0: ids of the sequences to fork from it once the prompt is computed.
  std::vector<int64_t> unforked;
  std::unique_ptr<BeamSearch> beams;  // null: no beam search
  Completion completion;
  bool aborted = false;
  bool started = false;
  Clock::time_point added = Clock::now();
  Clock::time_point first_step, first_token;
};

// A step whose tokens were not taken yet.
struct StepInFlight {
  StepPlan plan;
  int flight = 0;   // of the runner
  Status launched;  // why it could not be launched
  bool ahead = false;
  Clock::time_point launch_time = Clock::now();
};

// Members are destroyed in reverse order: users before what they use.
struct Engine::State {
  EngineConfig config;
  MemoryPlan plan;
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<Ops> ops;
  std::unique_ptr<Model> model;
  std::unique_ptr<ModelRunner> runner;
  std::unique_ptr<BlockPool> pool;
  std::unique_ptr<KvReuse> reuse;
  std::unique_ptr<SwapSpace> swap;        // null: nothing is swapped
  std::unique_ptr<BlockPool> host_pages;  // of the swap space
  std::unique_ptr<Scheduler> scheduler;
  double load_ms = 0;

  int64_t next_id = 1;
  std::map<int64_t, ActiveRequest> active;  // by Sequence::request
  std::map<int64_t, Completion> finished;
  std::vector<int32_t> last_table;  // pages of the most recently finished request
  std::vector<int> touched_rows;    // contiguous: most tokens each cache row ever held
  int touched_end = 1;              // paged: 1 + the largest page ever used of today's storage

  bool run_ahead = false;
  std::deque<StepInFlight> in_flight;  // oldest first, at most kMaxStepsInFlight
  bool must_settle = false;            // someone waits for the tokens in flight to be known

  // Schedules and launches a step; requests that cannot go on end first.
  void LaunchNext(std::vector<TokenEvent>* events);
  // Whether the next step can do without knowing the tokens of the one in flight.
  bool CanRunAhead() const;
  // Waits for the oldest step in flight and hands out its tokens.
  void CollectOldest(std::vector<TokenEvent>* events);
  // Whether the sequence of an entry has not ended since the step was scheduled.
  bool IsAlive(const StepPlan::Entry& entry) const;
  ActiveRequest& RequestOf(const StepPlan::Entry& entry);
  Status NotFinite(const StepPlan& plan, const Sequence& failed);
  void LaunchAgain();

  Status MakeSwapSpace();
  // Whether it is an end-of-sequence token that counts.
  bool EndsAnswer(const Request& request, int32_t token) const;
  // The limit that ends the request after this many tokens; kNone if it may go on.
  FinishReason LimitReached(const ActiveRequest& active, int num_generated) const;
  void RecordTouched(const Sequence& seq);
  // Makes storage for pages [0, end) usable.
  Status GrowStorage(int end);
  // Makes storage for the step usable and moves pages in and out.
  Status PrepareStorage(const Scheduler::Step& step);
  void RecordPromptSpeed(const StepInFlight& step);
  // Ends the text and fills in what is known of the answer; returns the text held back.
  AnswerStream::Delta EndText(ActiveRequest* active, FinishReason reason) const;
  // Appends a token to the answer, and its text unless it is `ends`, the end of the sequence.
  AnswerStream::Delta PushToken(ActiveRequest* active, int32_t token, bool ends) const;
  // `key`: of the request in `active`.
  static std::unique_ptr<Sequence> MakeSequence(const Request& request, int64_t id, int64_t key);
  // Starts the other samples of a request; they share what sequence `id` has computed of the prompt
  // if it runs, and start on their own if it ended before.
  void ForkSamples(int64_t id);
  // Ends a sample; the rest of its text is appended to what the event already carries.
  void Finish(int64_t id, FinishReason reason, Status error, TokenEvent* event);
  // Ends a sample or a beam search that got no new token.
  void End(int64_t id, FinishReason reason, const Status& error, std::vector<TokenEvent>* events);
  std::unique_ptr<Sequence> FinishSequence(int64_t id, bool reusable);
  void FinishAborted(std::vector<TokenEvent>* events);
  void FinishOutOfPages(const std::vector<const Sequence*>& seqs, std::vector<TokenEvent>* events);
  void RecordLogits(ActiveRequest& active, int output, int32_t token);
  // The event of one sampled token, after the scheduler took it.
  TokenEvent OnToken(const Sequence& seq, int32_t token);

  Status CheckBeamWidth(const Request& request) const;
  std::unique_ptr<BeamSearch> StartBeams(const Request& request, int64_t id) const;
  // Takes the logits behind a beam.
  void ScoreBeam(ActiveRequest& a, const Sequence& seq, int output,
                 std::span<const TokenCount> penalties);
  // Brings the search on by a token if all beams are scored; it may end.
  void AdvanceBeams(int64_t id, std::vector<TokenEvent>* events);
  // Gives each beam of the scorer a sequence that goes on.
  void ForkBeams(const ActiveRequest& a);
  void EndBeams(int64_t id, FinishReason reason, const Status& error,
                std::vector<TokenEvent>* events);
};

}  // namespace kuiper
