#include "kuiper/server/verification.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "kuiper/base/errors.h"
#include "kuiper/base/text.h"
#include "kuiper/engine/run_comparison.h"
#include "kuiper/server/json_fields.h"

namespace kuiper {
namespace {

using Json = nlohmann::ordered_json;

// The ids of the answer, and of its prompt if the body has them.
struct GivenIds {
  std::vector<int32_t> answer, prompt;
};

StatusOr<GivenIds> TakeGivenIds(JsonNode* body) {
  if (!body->IsObject()) return InputError("the body is not an object");
  if (GivenField(*body, "messages") == nullptr && GivenField(*body, "prompt") == nullptr) {
    RenameField(body, "prompt_token_ids", "prompt");
  }
  GivenIds given;
  KU_ASSIGN_OR_RETURN(given.answer, TakeIds(body, "token_ids"));
  KU_ASSIGN_OR_RETURN(given.prompt, TakeIds(body, "prompt_token_ids"));
  if (given.answer.empty())
    return InputError(Param("token_ids") + " is missing: the ids of the answer");
  for (const char* response_option : {"stream", "stream_options", "return_token_ids"}) {
    TakeField(body, response_option);
  }
  return given;
}

Status CheckOneAnswer(const PreparedRequest& prepared) {
  const Request& request = prepared.requests.at(0);
  if (prepared.requests.size() > 1 || request.num_samples > 1) {
    return InputError(Param("n") + " must be 1: one answer is verified at a time");
  }
  if (request.beam_width > 1) {
    return Status(StatusCode::kUnavailable,
                  Param("beam_width") + " is not supported: logits of beams are not kept");
  }
  if (request.sampling.temperature > 0 && request.sampling.seed == kRandomSeed) {
    return InputError(Param("seed") + " is missing: which tokens were drawn depends on it");
  }
  return OkStatus();
}

class VerificationWriter : public AnswerWriter {
 public:
  VerificationWriter(const PreparedRequest& prepared, AnswerTitle title)
      : given_(*prepared.verified), title_(std::move(title)) {}

  Json Whole(const AnswerParts& parts) const override;

  // Verifications are never streamed.
  std::string Begin(const AnswerParts&) override { return ""; }
  std::string OnDelta(const AnswerDelta&, const AnswerParts&) override { return ""; }
  std::string End(const AnswerParts&) override { return ""; }
  std::string Failed(const ApiError&) override { return ""; }

 private:
  const std::vector<int32_t>& given_;
  const AnswerTitle title_;
};

Json VerificationWriter::Whole(const AnswerParts& parts) const {
  const Completion& paged = *parts.choices().at(0).completion;
  const Completion& contiguous = *parts.choices().at(1).completion;
  Completion given;
  given.tokens = given_;
  // Logits are compared by their digests.
  const auto of_runs = FirstDifference({"paged", paged}, {"contiguous", contiguous}, 0);
  auto first = FirstDifference({"in the answer", given}, {"now", paged}, 0);
  if (of_runs.has_value() && (!first.has_value() || of_runs->token <= first->token)) {
    first = of_runs;
  }
  const auto num_tokens = given_.size();
  Json body = {{"id", "verification-" + title_.id},
               {"object", "kuiper.verification"},
               {"created", title_.created},
               {"model", title_.model},
               {"identical", !first.has_value()},
               {"num_tokens", num_tokens},
               {"ids_equal", paged.tokens == given_ && contiguous.tokens == given_},
               {"logits_equal", paged.logit_digests == contiguous.logit_digests}};
  if (!first.has_value()) {
    body["difference"] = nullptr;
    body["message"] =
        "identical: " + Counted(static_cast<int64_t>(num_tokens), "token") + ", logits equal";
  } else {
    const std::string where = "token " + std::to_string(first->token);
    body["difference"] = {{"token", first->token}, {"what", first->what}};
    body["message"] = "different from " + where + " on: " + first->what;
  }
  body["prompt_tokens"] = paged.prompt_tokens;
  body["cached_tokens"] = paged.cached_tokens;
  return body;
}

}  // namespace

PreparedOr PrepareVerification(const ServedModel& model, AnswerMemory* memory, JsonNode body) {
  StatusOr<GivenIds> given = TakeGivenIds(&body);
  if (!given.ok()) return ErrorOf(given.status());
  const bool is_chat = GivenField(body, "messages") != nullptr;
  PreparedOr made = Prepare(model, memory, std::move(body), is_chat);
  auto* prepared = std::get_if<PreparedRequest>(&made);
  if (prepared == nullptr) return made;
  const Status can = CheckOneAnswer(*prepared);
  if (!can.ok()) return ErrorOf(can);
  Request& request = prepared->requests[0];
  if (!given->prompt.empty()) request.prompt = std::move(given->prompt);
  const int num_tokens = static_cast<int>(request.prompt.size());
  if (num_tokens >= model.max_context) {
    return PromptTooLong(is_chat ? "messages" : "prompt", num_tokens, model.max_context);
  }
  request.reasoning_budget = ReasoningBudgetOf(request, model.max_context);
  request.max_new_tokens = static_cast<int>(given->answer.size());
  request.digest_logits = true;
  Request again = request;
  prepared->requests.push_back(std::move(again));
  prepared->verified = std::move(given->answer);
  return made;
}

std::unique_ptr<AnswerWriter> MakeVerificationWriter(const PreparedRequest& prepared,
                                                     AnswerTitle title, const Tokenizer&,
                                                     ReasoningField) {
  return std::make_unique<VerificationWriter>(prepared, std::move(title));
}

}  // namespace kuiper
