#include "bench/client.h"

#include <algorithm>
#include <map>
#include <utility>

#include "kuiper/base/json.h"
#include "kuiper/base/text.h"

namespace kuiper::tools {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds kAsk{30000};
// Limit without any byte from any call; a long prompt may take this long.
constexpr Milliseconds kSilence{600000};

double Seconds(Clock::duration time) {
  return std::chrono::duration<double>(time).count();
}

// Returns the number of tokens in a choice of a chunk. Servers that do not send ids send one token
// per chunk.
int TokensIn(const JsonNode& choice) {
  const JsonNode* ids = choice.Find("token_ids");
  if (ids != nullptr && ids->IsArray()) return static_cast<int>(ids->items.size());
  const auto has_text = [](const JsonNode& part, const char* key) {
    const JsonNode* text = part.Find(key);
    return text != nullptr && !(text->text.empty() && text->items.empty());
  };
  if (has_text(choice, "text")) return 1;
  const JsonNode* delta = choice.Find("delta");
  for (const char* key : {"content", "reasoning_content", "reasoning", "tool_calls"}) {
    if (delta != nullptr && has_text(*delta, key)) return 1;
  }
  return 0;
}

// A call in progress.
class Calling {
 public:
  explicit Calling(CallTimes* times) : times_(times) {}

  void Take(const HttpUpdate& update, double seconds) {
    if (update.status != 200) {
      refusal_ += update.body;
    } else {
      for (const std::string& data : reader_.Push(update.body)) TakeEvent(data, seconds);
    }
    if (!update.has_ended) return;
    times_->ended = seconds;
    if (!times_->error.empty()) return;
    if (!update.error.ok()) {
      times_->error = update.error.message();
    } else if (update.status != 200) {
      times_->error = "status " + std::to_string(update.status) + ": " + Quoted(refusal_);
    } else if (!is_done_) {
      times_->error = "the stream ended without [DONE]";
    } else if (times_->arrivals.empty()) {
      times_->error = "no token arrived";
    }
  }

 private:
  void TakeEvent(const std::string& data, double seconds) {
    if (data == "[DONE]") {
      is_done_ = true;
      return;
    }
    const StatusOr<JsonNode> event = ParseJson(data, StatusCode::kUnavailable, "event");
    if (!event.ok() || !event->IsObject() || event->Find("error") != nullptr) {
      times_->error = "the stream says " + Quoted(data);
      return;
    }
    int tokens = 0;
    if (const JsonNode* choices = event->Find("choices"); choices != nullptr) {
      for (const JsonNode& choice : choices->items) tokens += TokensIn(choice);
    }
    if (tokens > 0) {
      std::vector<Arrival>& arrivals = times_->arrivals;
      if (arrivals.empty() || arrivals.back().seconds < seconds) arrivals.push_back({seconds, 0});
      arrivals.back().tokens += tokens;
      times_->tokens += tokens;
    }
    const JsonNode* usage = event->Find("usage");
    if (usage != nullptr && usage->IsObject()) TakeUsage(*usage);
  }

  void TakeUsage(const JsonNode& usage) {
    const auto number = [](const JsonNode& object, const char* key, int otherwise) {
      const JsonNode* value = object.Find(key);
      const std::optional<double> count = value == nullptr ? std::nullopt : value->AsDouble();
      return count.has_value() ? static_cast<int>(*count) : otherwise;
    };
    times_->tokens = number(usage, "completion_tokens", times_->tokens);
    times_->prompt_tokens = number(usage, "prompt_tokens", 0);
    const JsonNode* details = usage.Find("prompt_tokens_details");
    if (details != nullptr) times_->cached_tokens = number(*details, "cached_tokens", 0);
  }

  CallTimes* times_;
  EventReader reader_;
  std::string refusal_;
  bool is_done_ = false;
};

}  // namespace

std::vector<std::string> EventReader::Push(std::string_view bytes) {
  constexpr std::string_view kData = "data:";
  rest_.append(bytes);
  std::vector<std::string> events;
  size_t begin = 0;
  for (size_t end; (end = rest_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    std::string_view line = std::string_view(rest_).substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (!line.starts_with(kData)) continue;
    line.remove_prefix(kData.size());
    if (line.starts_with(' ')) line.remove_prefix(1);
    events.emplace_back(line);
  }
  rest_.erase(0, begin);
  return events;
}

std::vector<double> CallTimes::between_tokens() const {
  if (arrivals.empty()) return {};
  std::vector<double> times(arrivals[0].tokens - 1, 0.0);
  for (size_t i = 1; i < arrivals.size(); ++i) {
    const double gap = arrivals[i].seconds - arrivals[i - 1].seconds;
    times.insert(times.end(), arrivals[i].tokens, gap / arrivals[i].tokens);
  }
  return times;
}

std::vector<CallTimes> RunLoad(HttpClient& client, const std::vector<PlannedCall>& plan,
                               int concurrency, const HttpHeaders& headers) {
  HttpHeaders all = headers;
  all.emplace_back("Content-Type", "application/json");
  std::vector<CallTimes> times(plan.size());
  std::map<int64_t, Calling> calls;
  const Clock::time_point begin = Clock::now();
  Clock::time_point last_news = begin;
  for (size_t next = 0; next < plan.size() || !calls.empty();) {
    const double now = Seconds(Clock::now() - begin);
    const bool has_place = concurrency == 0 || calls.size() < static_cast<size_t>(concurrency);
    const double pause = next < plan.size() && has_place ? plan[next].seconds - now : 1;
    if (pause <= 0) {
      CallTimes& call = times[next];
      call = {.is_warm_up = plan[next].is_warm_up, .planned = plan[next].seconds, .sent = now};
      const StatusOr<int64_t> id = client.Begin({"POST", plan[next].path, plan[next].body, all});
      if (id.ok()) calls.emplace(*id, Calling(&call));
      if (!id.ok()) call.error = id.status().message();
      last_news = Clock::now();
      ++next;
    }
    for (const HttpUpdate& update :
         client.Poll(Milliseconds(static_cast<int>(std::max(pause, 0.0) * 1e3)))) {
      const auto place = calls.find(update.call);
      if (place == calls.end()) continue;
      last_news = update.at;
      place->second.Take(update, Seconds(update.at - begin));
      if (update.has_ended) calls.erase(place);
    }
    if (Clock::now() - last_news < kSilence || calls.empty()) continue;
    for (auto& [id, call] : calls) {
      call.Take({.call = id,
                 .at = Clock::now(),
                 .has_ended = true,
                 .error = Status(StatusCode::kUnavailable, "the server says nothing")},
                Seconds(Clock::now() - begin));
      client.Cancel(id);
    }
    calls.clear();
  }
  return times;
}

StatusOr<std::string> ServedModelName(HttpClient& client, const HttpHeaders& headers) {
  KU_ASSIGN_OR_RETURN(const HttpClient::Answer answer,
                      client.Ask({"GET", "/models", "", headers}, kAsk));
  const StatusOr<JsonNode> json = ParseJson(answer.body, StatusCode::kUnavailable, "the models");
  const JsonNode* data = answer.status == 200 && json.ok() ? json->Find("data") : nullptr;
  if (data != nullptr && data->IsArray() && !data->items.empty() && data->items[0].IsObject()) {
    const JsonNode* id = data->items[0].Find("id");
    return id != nullptr ? id->text : "";
  }
  return Status(StatusCode::kUnavailable,
                "the server does not list its models: status " + std::to_string(answer.status));
}

}  // namespace kuiper::tools
