// Sends a load to a server and records when the replies arrive. Every time counts from the
// scheduled sending time of the request, so a slow server cannot slow down the load that measures
// it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/load.h"
#include "kuiper/base/status.h"
#include "kuiper/server/http_client.h"

namespace kuiper::tools {

// Extracts the data of complete server-sent events from pieces of a stream.
class EventReader {
 public:
  std::vector<std::string> Push(std::string_view bytes);

 private:
  std::string rest_;
};

// Tokens that arrived at the same time.
struct Arrival {
  double seconds = 0;
  int tokens = 1;
};

// Times in seconds from the beginning of the load.
struct CallTimes {
  bool is_warm_up = false;
  double planned = 0, sent = 0, ended = 0;
  std::vector<Arrival> arrivals = {};
  int prompt_tokens = 0, cached_tokens = 0, tokens = 0;  // counted by the server
  std::string error = {};                                // "" if the whole reply arrived

  bool ok() const { return error.empty(); }
  double to_first_token() const { return arrivals.front().seconds - planned; }
  double to_end() const { return ended - planned; }
  // Times between tokens. Of n tokens that arrived together, each counts as an n-th of the time;
  // the first arrival has no time.
  std::vector<double> between_tokens() const;
};

// Errors of a call are stored in its times, which are in the order of the plan. `headers` are sent
// with every call.
std::vector<CallTimes> RunLoad(HttpClient& client, const std::vector<PlannedCall>& plan,
                               int concurrency, const HttpHeaders& headers);

// Returns the first model that the server lists.
StatusOr<std::string> ServedModelName(HttpClient& client, const HttpHeaders& headers);

}  // namespace kuiper::tools
