#include "kuiper/engine/run_comparison.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <span>
#include <utility>

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

class Comparer {
 public:
  Comparer(const ComparedRun& a, const ComparedRun& b) : a_(a), b_(b) {}

  std::optional<RunDifference> FirstToken(const Completion& x, const Completion& y, int vocab) {
    const size_t tokens = std::min(x.tokens.size(), y.tokens.size());
    for (size_t i = 0; i < tokens; ++i) {
      const auto p = Row(x.logits, i, vocab), q = Row(y.logits, i, vocab);
      if (const std::optional<size_t> id = FirstDifferent(p, q)) {
        return At(i, "logit of id " + std::to_string(*id) + " is " + Values(p[*id], q[*id]));
      }
      if (x.tokens[i] != y.tokens[i]) {
        return At(i, "id is " + Both(std::to_string(x.tokens[i]), std::to_string(y.tokens[i])));
      }
    }
    if (x.tokens.size() == y.tokens.size()) return std::nullopt;
    return At(tokens, "the answer ends after " +
                          Both(std::to_string(x.tokens.size()), std::to_string(y.tokens.size())) +
                          " tokens");
  }

  // Adds the layer to a difference.
  void FindLayer(const Completion& x, const Completion& y, int hidden, RunDifference* difference) {
    const std::string head = "token " + std::to_string(difference->token);
    const auto layers = static_cast<int>(std::min(x.hidden.size(), y.hidden.size()) / hidden);
    for (int layer = 0; layer < layers; ++layer) {
      const auto p = Row(x.hidden, layer, hidden), q = Row(y.hidden, layer, hidden);
      const std::optional<size_t> at = FirstDifferent(p, q);
      if (!at.has_value()) continue;
      difference->layer = layer;
      difference->what = head + ", layer " + std::to_string(layer) + ": element " +
                         std::to_string(*at) + " behind it is " + Values(p[*at], q[*at]) + "; " +
                         difference->what;
      return;
    }
    difference->what = head + ", behind the last layer (all " + std::to_string(layers) +
                       " layers are equal when the step runs again): " + difference->what;
  }

 private:
  std::string Both(const std::string& x, const std::string& y) const {
    return x + " " + a_.name + ", " + y + " " + b_.name;
  }
  std::string Values(float x, float y) const {
    char text[2][32];
    std::snprintf(text[0], sizeof(text[0]), "%.9g", x);
    std::snprintf(text[1], sizeof(text[1]), "%.9g", y);
    return Both(text[0], text[1]);
  }
  static RunDifference At(size_t token, std::string what) {
    return {.token = static_cast<int>(token), .layer = {}, .what = std::move(what)};
  }

  const ComparedRun& a_;
  const ComparedRun& b_;
};

}  // namespace

StatusOr<RunComparison> CompareRuns(const ComparedRun& a, const ComparedRun& b, int vocab,
                                    int hidden) {
  RunComparison comparison;
  KU_ASSIGN_OR_RETURN(comparison.first, a.run({}));
  KU_ASSIGN_OR_RETURN(const Completion second, b.run({}));
  Comparer comparer(a, b);
  comparison.difference = comparer.FirstToken(comparison.first, second, vocab);
  if (!comparison.difference.has_value()) return comparison;
  KU_ASSIGN_OR_RETURN(const Completion x, a.run(comparison.difference->token));
  KU_ASSIGN_OR_RETURN(const Completion y, b.run(comparison.difference->token));
  comparer.FindLayer(x, y, hidden, &*comparison.difference);
  return comparison;
}

}  // namespace kuiper
