// One of several resident programs that run in alternation (tools/compare_peers.py). Each line on
// stdin is a command; the reply is a line with the seconds it took. The commands are:
//
//   burst                a read; replies its bytes per second instead
//   prefill TOKENS SEED  a prompt; also replies the id of the first token
//   open CONTEXT BATCH   adds sequences that decode, until close
//   step COUNT           steps of all of them
//   close
#include <cstdio>
#include <iostream>
#include <sstream>

#include "bench/scenarios.h"
#include "kuiper/base/clock.h"

namespace kuiper::tools {
namespace {

class Turns {
 public:
  Turns(Engine& engine, Machine& machine, const Workload& w)
      : engine_(engine), machine_(machine), w_(w) {}

  StatusOr<std::string> Answer(const std::string& line) {
    std::istringstream words(line);
    std::string verb;
    int first = 0, second = 0;
    words >> verb;
    if (verb == "burst") return std::to_string(machine_.Bandwidth());
    if (verb == "close" && open_) return Close();
    if (verb == "prefill" && !open_ && words >> first >> second && first > 0) {
      return Prefill(first, second);
    }
    if (verb == "open" && !open_ && words >> first >> second && first > 0 && second > 0) {
      return Open(first, second);
    }
    if (verb == "step" && open_ && words >> first && first > 0) return Step(first);
    return Status(StatusCode::kInput, "not understood: " + line);
  }

 private:
  StatusOr<std::string> Prefill(int tokens, int seed) {
    KU_ASSIGN_OR_RETURN(const Completion c,
                        engine_.Generate(MakeBenchRequest(engine_, tokens, 1, seed)));
    return std::to_string(c.prefill_ms / 1e3) + " " + std::to_string(c.tokens.at(0));
  }

  StatusOr<std::string> Open(int context, int batch) {
    std::vector<Request> requests;
    requests.reserve(batch);
    for (int b = 0; b < batch; ++b) {
      requests.push_back(MakeBenchRequest(engine_, context, w_.NewTokens(context, batch), b));
    }
    KU_ASSIGN_OR_RETURN(sequences_, StartDecoding(engine_, std::move(requests)));
    open_ = true;
    return std::string("ok");
  }

  StatusOr<std::string> Step(int count) {
    const Clock::time_point begin = Clock::now();
    KU_RETURN_IF_ERROR(StepAll(engine_, sequences_, count));
    return std::to_string(SecondsSince(begin));
  }

  StatusOr<std::string> Close() {
    AbortAll(engine_, sequences_);
    open_ = false;
    return std::string("ok");
  }

  Engine& engine_;
  Machine& machine_;
  const Workload& w_;
  Decoding sequences_;
  bool open_ = false;
};

}  // namespace

void BenchTurns(Engine& engine, Machine& machine, const Workload& w) {
  Turns turns(engine, machine, w);
  const auto say = [](const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  };
  say("ready " + Engine::Version() + ", " + engine.device_description());
  for (std::string line; std::getline(std::cin, line);) {
    const StatusOr<std::string> answer = turns.Answer(line);
    say(answer.ok() ? *answer : "error " + answer.status().message());
  }
}

}  // namespace kuiper::tools
