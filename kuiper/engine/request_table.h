// The active requests, each with its Answering object, and finished answers that were not taken
// yet. Engine adds, aborts and takes requests here; the step loop finds the Answering objects here.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/engine/decoding_strategy.h"
#include "kuiper/engine/picture_store.h"
#include "kuiper/engine/request.h"

namespace kuiper {

class RequestTable {
 public:
  // Makes the Answering object of a request whose first sequence is `first`.
  using Make = std::function<std::unique_ptr<DecodingStrategy>(AnswerContext& context, int64_t id,
                                                               int64_t first)>;

  // `pictures` is null if the model has no vision encoder.
  RequestTable(AnswerRules rules, Scheduler& scheduler, PictureStore* pictures)
      : rules_(std::move(rules)), context_(scheduler), pictures_(pictures) {}

  // Adds a request, answered by sampling or beam search as it specifies. Returns its id.
  StatusOr<int64_t> Add(Request request);
  // Adds a request with any Answering object.
  StatusOr<int64_t> Add(const Request& request, const Make& make);
  // See Engine::Abort.
  void Abort(int64_t request, std::optional<int> sample) {
    if (active_.contains(request)) aborted_.emplace(request, sample);
  }
  void EndAborted();
  // Calls `go_on` for each request whose prompt has the picture, and aborts requests for which it
  // returns false. Returns false if no request continues.
  bool IsPictureWanted(int64_t source, const std::function<bool(int64_t request)>& go_on);
  bool empty() const { return active_.empty(); }

  // Calls f(Answering&) unless the request has ended; the call may end it.
  template <typename F>
  void Ask(int64_t request, const F& f) {
    const auto it = active_.find(request);
    if (it == active_.end()) return;
    f(*it->second);
    if (!it->second->done()) return;
    active_.erase(it);
    DropPictures(request);
  }

  std::vector<TokenEvent> TakeEvents() { return std::exchange(context_.events, {}); }
  StatusOr<Completion> Take(int64_t request, int sample);
  // Pages of an answer that is being generated or was not taken yet.
  StatusOr<std::vector<int32_t>> PagesOf(int64_t request, int sample) const;
  // See Engine::num_computed.
  StatusOr<int> NumComputed(int64_t request) const;

 private:
  // Gives the pictures to the store, and records their places in the prompt of the next request.
  Status TakePictures(std::span<const int32_t> prompt, std::vector<VisionInput> pictures);
  void DropPictures(int64_t request);

  AnswerRules rules_;
  AnswerContext context_;
  PictureStore* pictures_;
  int64_t next_id_ = 1;
  std::map<int64_t, std::unique_ptr<DecodingStrategy>> active_;
  std::set<std::pair<int64_t, std::optional<int>>> aborted_;  // absent: all samples
};

}  // namespace kuiper
