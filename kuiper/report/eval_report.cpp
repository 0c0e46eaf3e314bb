#include "kuiper/report/eval_report.h"

#include <nlohmann/json.hpp>

#include "kuiper/base/text.h"
#include "kuiper/report/number_text.h"
#include "kuiper/report/result_json.h"

namespace kuiper {
namespace {

using Json = nlohmann::ordered_json;

double TokensPerSecond(const EvaluatedEngine& sums) {
  return PerSecond(static_cast<double>(sums.score.count), 1000 * sums.seconds);
}

// A single token has no standard error.
std::string ErrorText(const TextScore& score) {
  return score.count > 1 ? Format("%9.4f", score.perplexity_error()) : "        -";
}

std::string NumbersLine(size_t number, const EvalRow& row) {
  std::string line = Format("%3zu %11.6f %12.4f ", number, row.sums.score.nats_per_token(),
                            row.sums.score.perplexity()) +
                     ErrorText(row.sums.score);
  if (row.sums.comparison.count > 0) {
    line += Format(" %11.4f%% %11.3e %11.3e", 100 * row.sums.comparison.share_of_same_best(),
                   row.sums.comparison.mean_change(), row.sums.comparison.mean_divergence());
  }
  return line + "\n";
}

// "tiny-qwen3: BF16, KV fp16, pages of 16 (--kv-cache-dtype fp16 --paged-attention)"
std::string DescribeRow(const EvalRow& row) {
  const RunFacts& ran = row.ran;
  return row.model + ": " + DTypeName(ran.dtype) + ", KV " + ran.kv_format.name() +
         (ran.paged ? ", pages of " + std::to_string(ran.page_size) : ", contiguous") +
         (row.flags.empty() ? "" : " (" + row.flags + ")");
}

Json RowJson(const EvalRow& row) {
  Json json = {{"model", row.model},
               {"flags", row.flags},
               {"scored", row.sums.score.count},
               {"nats_per_token", row.sums.score.nats_per_token()},
               {"nats_error", row.sums.score.nats_error()},
               {"perplexity", row.sums.score.perplexity()},
               {"perplexity_error", row.sums.score.perplexity_error()},
               {"seconds", row.sums.seconds},
               {"tokens_per_second", TokensPerSecond(row.sums)},
               {"compared", Json()},
               {"ran", RanObject(row.ran)}};
  const ScoreComparison& c = row.sums.comparison;
  if (c.count > 0) {
    json["compared"] = {{"same_argmax", c.share_of_same_best()},
                        {"mean_logprob_change", c.mean_change()},
                        {"max_logprob_change", c.largest_change},
                        {"mean_kl", c.mean_divergence()}};
  }
  return json;
}

}  // namespace

std::string EvalRow::Summary() const {
  return model + ": " + Counted(sums.score.count, "token") +
         Format(" predicted in %.1f s, %.1f tokens/s", sums.seconds, TokensPerSecond(sums));
}

std::string EvalTable(const EvalResult& result) {
  const std::vector<EvalRow>& rows = result.rows;
  std::string text =
      result.text_file + Format(
                             ": %ld tokens, %ld predicted, windows of %d, "
                             "stride %d%s\n\n",
                             result.num_tokens, rows.at(0).sums.score.count, result.window,
                             result.stride, result.interrupted ? ", interrupted" : "");
  const bool compared = rows.size() > 1;
  text += "     nats/token   perplexity       +/-";
  if (compared) text += "  same argmax   |d log p|     mean KL";
  text += "\n";
  for (size_t i = 0; i < rows.size(); ++i) text += NumbersLine(i + 1, rows[i]);
  text += "\n";
  for (size_t i = 0; i < rows.size(); ++i) {
    text += Format("%3zu  ", i + 1) + DescribeRow(rows[i]) + "\n";
  }
  return text;
}

std::string EvalJson(const EvalResult& result, Speller spell) {
  Json json = {{"version", 1},
               {"text", result.text_file},
               {"tokens", result.num_tokens},
               {"window", result.window},
               {"stride", result.stride},
               {"interrupted", result.interrupted},
               {"configurations", Json::array()},
               {"error", ErrorObject(result.error, spell)}};
  for (const EvalRow& row : result.rows) json["configurations"].push_back(RowJson(row));
  return DumpJson(json);
}

}  // namespace kuiper
