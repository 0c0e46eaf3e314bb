#include "kuiper/chat/batch_job.h"

#include <algorithm>
#include <utility>

namespace kuiper {
namespace {

// Maximum requests read but not yet written, per engine sequence. A long answer delays only the
// writing of later lines, not their computation. The limit bounds the work that a kill can lose.
constexpr size_t kReadAhead = 16;
constexpr int kPatienceMs = 1000;

// Error: the output file is not from an earlier run of this batch.
Status NotOurs(const std::string& name, int64_t line, const std::string& what) {
  return Status(StatusCode::kInput, name + ", line " + std::to_string(line) + " " + what,
                "choose another " + Param("output") + ", or remove this one to begin again");
}

}  // namespace

StatusOr<BatchResumption> ResumeBatch(BatchInput& input, AppendFile& output,
                                      const std::string& name, const std::string& fingerprint) {
  constexpr char kNoAnswer[] = "is not the answer to the request in that place of the input";
  BatchResumption found;
  while (const std::optional<std::string> answer = output.NextFinished()) {
    const std::optional<BatchInput::Item> item = input.Next();
    const auto json = ParseJson(*answer, StatusCode::kInput, "the line");
    ++found.num_answers;
    if (!item.has_value() || !json.ok() || !answer->starts_with(BatchAnswerHead(item->line))) {
      return NotOurs(name, found.num_answers, kNoAnswer);
    }
    const JsonNode* error = json->Find("error");
    const bool failed = error != nullptr && !error->IsNull();
    found.num_failed += failed;
    if (!failed && FingerprintOf(*json) != fingerprint) {
      return NotOurs(name, found.num_answers,
                     "is the answer of another model or of other settings");
    }
  }
  if (!output.partial_line().empty()) {
    std::optional<BatchInput::Item> item = input.Next();
    const std::string head = item.has_value() ? BatchAnswerHead(item->line) : "";
    if (head.empty() ||
        !output.partial_line().starts_with(head.substr(0, output.partial_line().size()))) {
      return NotOurs(name, found.num_answers + 1, kNoAnswer);
    }
    input.PutBack(std::move(*item));
    KU_RETURN_IF_ERROR(output.CutPartialLine());
  }
  return found;
}

void BatchJob::Store(const BatchLine& line, std::string text) {
  const size_t index = static_cast<size_t>(line.number - num_kept_ - counts_.num_written - 1);
  if (lines_.size() <= index) lines_.resize(index + 1);
  lines_[index] = std::move(text);
}

void BatchJob::Fail(const BatchLine& line, const Status& status) {
  ++counts_.num_failed;
  Store(line, BatchErrorLine(line, status, line.is_flat ? host_.flat_names : host_.body_names));
}

StatusOr<Prompt> BatchJob::BuildPrompt(const ChatRequest& request) {
  if (!request.request.prompt.empty()) return Prompt{.ids = request.request.prompt};
  if (!request.is_chat)
    return Prompt{.ids = EncodeRaw(*engine_.tokenizer(), request.text, request.adds_bos)};
  return host_.build_prompt(request);
}

void BatchJob::Start(const BatchInput::Item& item) {
  const auto add = [&]() -> StatusOr<int64_t> {
    KU_RETURN_IF_ERROR(item.json.status());
    KU_ASSIGN_OR_RETURN(const ChatRequest wanted,
                        ParseBatchLine(item.line, *item.json, host_.defaults));
    KU_ASSIGN_OR_RETURN(Prompt prompt, BuildPrompt(wanted));
    KU_ASSIGN_OR_RETURN(const int64_t id,
                        engine_.Add(MakeRequest(std::move(prompt), wanted.request)));
    const int choices = wanted.request.num_samples;
    active_[id] = {item.line, wanted.is_chat, choices, std::vector<Completion>(choices)};
    return id;
  };
  const StatusOr<int64_t> id = add();
  if (id.ok()) {
    Store(item.line, "");
    return;
  }
  Fail(item.line, id.status());
}

void BatchJob::Fill() {
  const size_t most = static_cast<size_t>(engine_.config().max_num_seqs);
  // Twice max_num_seqs, so that a waiting request takes a free place in the next step.
  while (!at_end_ && active_.size() < 2 * most && lines_.size() < kReadAhead * most) {
    // If idle, wait for the next line, but not forever, so that no signal is missed.
    const bool idle = active_.empty() && lines_.empty();
    if (!input_.Ready(idle ? kPatienceMs : 0)) return;
    const std::optional<BatchInput::Item> item = input_.Next();
    at_end_ = !item.has_value();
    if (!at_end_) Start(*item);
  }
}

void BatchJob::FinishChoice(int64_t id, int choice) {
  Active& request = active_.at(id);
  request.choices.at(choice) = engine_.Take(id, choice).value();
  host_.on_answer(id, choice, request.choices[choice], request.line.custom_id);
  if (--request.num_running > 0) return;
  counts_.num_prompt_tokens += request.choices[0].prompt_tokens;
  const auto failed = std::find_if(
      request.choices.begin(), request.choices.end(), [](const Completion& completion) {
        return completion.finish == FinishReason::kError || completion.tokens.empty();
      });
  if (failed != request.choices.end()) {
    Fail(request.line, failed->error);
  } else {
    Store(request.line,
          BatchAnswerLine(request.line, request.is_chat, host_.responder, request.choices));
  }
  active_.erase(id);
}

Status BatchJob::WriteReady() {
  std::string text;
  while (!lines_.empty() && !lines_.front().empty()) {
    text += lines_.front();
    lines_.pop_front();
    ++counts_.num_written;
  }
  return text.empty() ? OkStatus() : output_.Write(text);
}

Status BatchJob::Run() {
  while (true) {
    Fill();
    KU_RETURN_IF_ERROR(WriteReady());
    if (host_.is_interrupted() || (at_end_ && active_.empty())) return OkStatus();
    if (active_.empty()) continue;
    for (const TokenEvent& event : engine_.Step()) {
      if (event.token.has_value()) ++counts_.num_tokens;
      if (event.finish != FinishReason::kNone) FinishChoice(event.request, event.sample);
    }
    counts_.num_done = input_.num_read() - static_cast<int64_t>(active_.size());
    host_.on_step(counts_);
  }
}

}  // namespace kuiper
