#include "kuiper/engine/request_table.h"

#include <algorithm>
#include <string>

#include "kuiper/engine/beam_search.h"
#include "kuiper/engine/sampled_answers.h"

namespace kuiper {
namespace {

Status NoSuchAnswer(int64_t request, int sample, const char* what) {
  return Status(StatusCode::kInvalidArgument, "answer " + std::to_string(sample) + " of request " +
                                                  std::to_string(request) + " " + what);
}

}  // namespace

StatusOr<int64_t> RequestTable::Add(Request request) {
  if (request.sampling.seed == kRandomSeed) request.sampling.seed = DrawSeed();
  const bool searches = request.beam_width > 1;
  KU_RETURN_IF_ERROR(CheckRequest(request, rules_.vocab));
  KU_RETURN_IF_ERROR(rules_.CheckEarlyBiases(request));
  if (request.num_prompt_logprobs.has_value() && rules_.max_prompt_rows == 0) {
    return Status(StatusCode::kInvalidArgument, "the engine was created without prompt_rows");
  }
  if (searches) KU_RETURN_IF_ERROR(BeamSearch::Check(rules_, request));
  KU_RETURN_IF_ERROR(TakePictures(request.prompt, std::exchange(request.images, {})));
  return Add(request, [&](AnswerContext& context, int64_t id, int64_t first) {
    std::unique_ptr<DecodingStrategy> strategy;
    if (searches) {
      strategy = std::make_unique<BeamSearch>(rules_, context, id, request, first);
    } else {
      strategy = std::make_unique<SampledAnswers>(rules_, context, id, request, first);
    }
    return strategy;
  });
}

StatusOr<int64_t> RequestTable::Add(const Request& request, const Make& make) {
  const int64_t first = context_.NewSequences(request.num_samples);
  std::unique_ptr<Sequence> seq = context_.MakeSequence(rules_, request, next_id_, first);
  seq->num_reserved_seqs = std::max(request.num_samples, request.beam_width);
  const Status added = context_.scheduler.Add(std::move(seq));
  if (!added.ok()) {
    DropPictures(next_id_);
    return added;
  }
  active_[next_id_] = make(context_, next_id_, first);
  return next_id_++;
}

Status RequestTable::TakePictures(std::span<const int32_t> prompt,
                                  std::vector<VisionInput> pictures) {
  if (pictures_ == nullptr) return pictures.empty() ? OkStatus() : NoVision();
  if (!pictures.empty() && rules_.on_full == OnFull::kSlide) {
    return Status(StatusCode::kInvalidArgument,
                  "a request with pictures cannot slide out of the context",
                  "use " + Param("on_full") + " stop or preempt");
  }
  KU_ASSIGN_OR_RETURN(PromptPictures overrides, pictures_->Place(prompt, std::move(pictures)));
  if (!overrides.spans.empty()) context_.overrides.emplace(next_id_, std::move(overrides));
  return OkStatus();
}

void RequestTable::DropPictures(int64_t request) {
  const auto node = context_.overrides.extract(request);
  if (!node.empty()) pictures_->Drop(node.mapped().sources);
}

void RequestTable::EndAborted() {
  for (const auto& [request, sample] : std::exchange(aborted_, {})) {
    Ask(request, [&sample = sample](DecodingStrategy& strategy) { strategy.Abort(sample); });
  }
}

bool RequestTable::IsPictureWanted(int64_t source,
                                   const std::function<bool(int64_t request)>& go_on) {
  bool is_wanted = false;
  for (const auto& [request, overrides] : context_.overrides) {
    const bool has = std::ranges::find(overrides.sources, source) != overrides.sources.end();
    if (!has || aborted_.contains({request, std::nullopt})) continue;
    if (go_on(request)) {
      is_wanted = true;
    } else {
      Abort(request, std::nullopt);
    }
  }
  return is_wanted;
}

StatusOr<Completion> RequestTable::Take(int64_t request, int sample) {
  auto node = context_.finished.extract({request, sample});
  if (node.empty()) {
    return NoSuchAnswer(request, sample, "has not ended, or was taken before");
  }
  return std::move(node.mapped());
}

StatusOr<std::vector<int32_t>> RequestTable::PagesOf(int64_t request, int sample) const {
  if (const auto done = context_.finished.find({request, sample});
      done != context_.finished.end()) {
    return done->second.pages;
  }
  const auto it = active_.find(request);
  if (it == active_.end()) return NoSuchAnswer(request, sample, "does not exist, or was taken");
  const std::optional<int64_t> sequence = it->second->SequenceOf(sample);
  if (!sequence.has_value()) return NoSuchAnswer(request, sample, "does not exist");
  const Sequence* seq = context_.scheduler.Find(*sequence);  // null: not forked yet
  return seq != nullptr ? seq->pages : std::vector<int32_t>();
}

StatusOr<int> RequestTable::NumComputed(int64_t request) const {
  const auto it = active_.find(request);
  if (it == active_.end()) return NoSuchAnswer(request, 0, "does not exist, or was taken");
  const std::optional<int64_t> sequence = it->second->SequenceOf(0);
  if (!sequence.has_value()) return NoSuchAnswer(request, 0, "does not exist");
  const Sequence* seq = context_.scheduler.Find(*sequence);
  return seq == nullptr ? 0 : std::min(seq->num_computed, seq->num_prompt);
}

}  // namespace kuiper
