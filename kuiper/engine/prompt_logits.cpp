#include "kuiper/engine/prompt_logits.h"

#include <algorithm>
#include <utility>

namespace kuiper {
namespace {

// A plan for tokens [begin, begin + count) of a prompt without a request, with the logits of
// positions from `first` on.
StepPlan PromptPlan(std::span<const int32_t> prompt, const PromptPictures& overrides,
                    const std::vector<int32_t>& pages, int begin, int count, int first,
                    int num_axes) {
  constexpr int64_t kNoRequest = 0;
  StepPlan plan;
  plan.num_axes = num_axes;
  StepPlan::Entry& entry = plan.Open(kNoRequest, begin);
  entry.num_kept_pages = begin == 0 ? 0 : static_cast<int>(pages.size());
  if (begin == 0) plan.pages = pages;
  for (int row = 0; row < count; ++row) {
    plan.tokens.push_back(TokenRef::Known(prompt[begin + row]));
    if (begin + row >= first) plan.logits_rows.push_back(row);
  }
  AppendOverrides(overrides.spans, begin, begin + count, &plan.overrides);
  for (int axis = 0; axis < num_axes; ++axis) {
    AppendPositions(overrides.spans, begin, begin + count, axis, &plan.positions);
  }
  plan.Close();
  return plan;
}

using OnRow = std::function<void(int position, const float* logits)>;

Status Compute(EngineParts& parts, std::span<const int32_t> prompt, const PromptPictures& overrides,
               const OnRow& on_row, int first) {
  const int num_tokens = static_cast<int>(prompt.size());
  KU_ASSIGN_OR_RETURN(const std::vector<int32_t> pages, parts.storage->Allocate(num_tokens));
  for (int begin = 0; begin < num_tokens;) {
    const int count = std::min(parts.config.max_num_batched_tokens, num_tokens - begin);
    const StepPlan plan = PromptPlan(prompt, overrides, pages, begin, count, first,
                                     parts.model->config().decoder.rope.num_axes());
    parts.runner->Take(parts.runner->Launch(plan));
    const int num_rows = static_cast<int>(plan.logits_rows.size());
    for (int i = 0; i < num_rows; ++i) {
      on_row(begin + plan.logits_rows[i], parts.runner->HostLogits(i));
    }
    begin += count;
  }
  parts.storage->Release(pages);
  return OkStatus();
}

}  // namespace

Status ComputeLogits(EngineParts& parts, std::span<const int32_t> prompt,
                     std::vector<VisionInput> images, const OnRow& on_row, int first) {
  PictureStore* pictures = parts.pictures.get();
  if (pictures == nullptr) {
    return images.empty() ? Compute(parts, prompt, {}, on_row, first) : NoVision();
  }
  KU_ASSIGN_OR_RETURN(const PromptPictures overrides, pictures->Place(prompt, std::move(images)));
  KU_CHECK(pictures->cache().Hold(overrides.sources), "other pictures are held");
  const std::map<int64_t, Status> failed = pictures->Prepare();
  Status done = failed.empty() ? OkStatus() : failed.begin()->second;
  if (done.ok()) done = Compute(parts, prompt, overrides, on_row, first);
  pictures->cache().Release(overrides.sources);
  pictures->Drop(overrides.sources);
  return done;
}

}  // namespace kuiper
