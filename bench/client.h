// Sends a load to a server and takes the times of what comes back. Every time counts from the
// moment at which the request was to be sent: a server that is slow does not hold back the load
// that it is measured with.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/load.h"
#include "kuiper/base/status.h"
#include "kuiper/server/http_client.h"

namespace kuiper::tools {

// Pieces of server-sent events -> the data of whole ones.
class EventReader {
 public:
  std::vector<std::string> Push(std::string_view bytes);

 private:
  std::string rest_;
};

// Tokens that arrived together.
struct Arrival {
  double seconds = 0;
  int tokens = 1;
};

// Times in seconds from the begin of the load.
struct CallTimes {
  bool is_warm_up = false;
  double planned = 0, sent = 0, ended = 0;
  std::vector<Arrival> arrivals = {};
  int prompt_tokens = 0, cached_tokens = 0, tokens = 0;  // as the server counts
  std::string error = {};                                // "": all of it arrived

  bool ok() const { return error.empty(); }
  double to_first_token() const { return arrivals.front().seconds - planned; }
  double to_end() const { return ended - planned; }
  // Between tokens; of n tokens that arrived together each took an n-th of the time, behind a first
  // one none.
  std::vector<double> between_tokens() const;
};

// What goes wrong with a call is in its times, which stand in the order of the plan. `headers` are
// those of every call.
std::vector<CallTimes> RunLoad(HttpClient& client, const std::vector<PlannedCall>& plan,
                               int concurrency, const HttpHeaders& headers);

// The first model that the server lists.
StatusOr<std::string> ServedModelName(HttpClient& client, const HttpHeaders& headers);

}  // namespace kuiper::tools
