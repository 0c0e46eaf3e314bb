#include "kuiper/engine/run_comparison.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <span>
#include <utility>

#include "kuiper/base/hash.h"

namespace kuiper {
namespace {

// Index of the first float whose bits differ.
std::optional<size_t> FirstDifferent(std::span<const float> a, std::span<const float> b) {
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (std::bit_cast<uint32_t>(a[i]) != std::bit_cast<uint32_t>(b[i])) return i;
  }
  return a.size() == b.size() ? std::nullopt : std::optional(std::min(a.size(), b.size()));
}

std::span<const float> Row(const std::vector<float>& rows, size_t row, size_t width) {
  return std::span(rows).subspan(row * width, width);
}

// Formats a value together with the names of the two runs.
class TwoNames {
 public:
  TwoNames(const std::string& a, const std::string& b) : a_(a), b_(b) {}

  std::string Both(const std::string& x, const std::string& y) const {
    return x + " " + a_ + ", " + y + " " + b_;
  }
  std::string Both(size_t x, size_t y) const { return Both(std::to_string(x), std::to_string(y)); }
  std::string Values(float x, float y) const {
    char text[2][32];
    std::snprintf(text[0], sizeof(text[0]), "%.9g", x);
    std::snprintf(text[1], sizeof(text[1]), "%.9g", y);
    return Both(text[0], text[1]);
  }

 private:
  const std::string a_, b_;
};

// Describes how the logits of a token differ; "" if they do not, or are not known.
std::string LogitDifference(const TwoNames& names, const Completion& x, const Completion& y,
                            size_t token, int vocab) {
  if (!x.logits.empty() && !y.logits.empty()) {
    const auto p = Row(x.logits, token, vocab), q = Row(y.logits, token, vocab);
    const std::optional<size_t> id = FirstDifferent(p, q);
    if (!id.has_value()) return "";
    return "logit of id " + std::to_string(*id) + " is " + names.Values(p[*id], q[*id]);
  }
  if (x.logit_digests.empty() || y.logit_digests.empty()) return "";
  const uint64_t p = x.logit_digests.at(token), q = y.logit_digests.at(token);
  if (p == q) return "";
  return "the logits have digest " + names.Both(HashText(p), HashText(q));
}

// Finds the first layer that differs and adds it to the difference.
void FindLayer(const TwoNames& names, const Completion& x, const Completion& y, int hidden,
               RunDifference* difference) {
  const std::string head = "token " + std::to_string(difference->token);
  const auto layers = static_cast<int>(std::min(x.hidden.size(), y.hidden.size()) / hidden);
  for (int layer = 0; layer < layers; ++layer) {
    const auto p = Row(x.hidden, layer, hidden), q = Row(y.hidden, layer, hidden);
    const std::optional<size_t> at = FirstDifferent(p, q);
    if (!at.has_value()) continue;
    difference->layer = layer;
    difference->what = head + ", layer " + std::to_string(layer) + ": element " +
                       std::to_string(*at) + " after it is " + names.Values(p[*at], q[*at]) + "; " +
                       difference->what;
    return;
  }
  difference->what = head + ", after the last layer (all " + std::to_string(layers) +
                     " layers are equal when the step runs again): " + difference->what;
}

}  // namespace

std::optional<RunDifference> FirstDifference(const NamedAnswer& a, const NamedAnswer& b,
                                             int vocab) {
  const TwoNames names(a.name, b.name);
  const auto at = [](size_t token, std::string what) {
    return RunDifference{.token = static_cast<int>(token), .layer = {}, .what = std::move(what)};
  };
  const std::vector<int32_t>&x = a.completion.tokens, &y = b.completion.tokens;
  const size_t tokens = std::min(x.size(), y.size());
  for (size_t i = 0; i < tokens; ++i) {
    std::string logits = LogitDifference(names, a.completion, b.completion, i, vocab);
    if (!logits.empty()) return at(i, std::move(logits));
    if (x[i] != y[i]) return at(i, "id is " + names.Both(x[i], y[i]));
  }
  if (x.size() == y.size()) return std::nullopt;
  return at(tokens, "the answer ends after " + names.Both(x.size(), y.size()) + " tokens");
}

StatusOr<RunComparison> CompareRuns(const ComparedRun& a, const ComparedRun& b, int vocab,
                                    int hidden) {
  RunComparison comparison;
  KU_ASSIGN_OR_RETURN(comparison.first, a.run({}));
  KU_ASSIGN_OR_RETURN(const Completion second, b.run({}));
  comparison.difference = FirstDifference({a.name, comparison.first}, {b.name, second}, vocab);
  if (!comparison.difference.has_value()) return comparison;
  KU_ASSIGN_OR_RETURN(const Completion x, a.run(comparison.difference->token));
  KU_ASSIGN_OR_RETURN(const Completion y, b.run(comparison.difference->token));
  FindLayer({a.name, b.name}, x, y, hidden, &*comparison.difference);
  return comparison;
}

}  // namespace kuiper
