#include "kuiper/engine/step_plan.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace kuiper {
namespace {

Status Bad(const std::string& what) {
  return Status(StatusCode::kInvalidArgument, "step plan: " + what);
}

// An array of a plan and the member with its range in an entry or a sample.
template <typename Owner, typename T>
struct PartOf {
  std::vector<T> StepPlan::*array;
  Range Owner::*range;
};
template <typename Owner, typename T>
PartOf(std::vector<T> StepPlan::*, Range Owner::*) -> PartOf<Owner, T>;

using Entry = StepPlan::Entry;
using Sample = StepPlan::Sample;
constexpr std::tuple kEntryParts{PartOf{&StepPlan::tokens, &Entry::tokens},
                                 PartOf{&StepPlan::pages, &Entry::pages},
                                 PartOf{&StepPlan::samples, &Entry::samples},
                                 PartOf{&StepPlan::logits_rows, &Entry::logits_rows},
                                 PartOf{&StepPlan::hidden_rows, &Entry::hidden_rows},
                                 PartOf{&StepPlan::overrides, &Entry::overrides}};
constexpr std::tuple kSampleParts{PartOf{&StepPlan::penalties, &Sample::penalties},
                                  PartOf{&StepPlan::biases, &Sample::biases},
                                  PartOf{&StepPlan::allowed, &Sample::allowed}};

template <typename Parts, typename F>
void ForEach(const Parts& parts, const F& f) {
  std::apply([&](const auto&... part) { (f(part), ...); }, parts);
}

template <typename Array>
int32_t SizeOf(const Array& array) {
  return static_cast<int32_t>(array.size());
}

// True if the ranges of the owners are consecutive and cover their arrays.
template <typename Owners, typename Parts>
bool Cover(const StepPlan& plan, const Owners& owners, const Parts& parts) {
  bool ok = true;
  ForEach(parts, [&](const auto& part) {
    const size_t size = (plan.*part.array).size();
    int32_t end = 0;
    for (const auto& owner : owners) {
      const Range range = owner.*part.range;
      ok = ok && range.begin == end && range.begin <= range.end &&
           static_cast<size_t>(range.end) <= size;
      end = range.end;
    }
    ok = ok && static_cast<size_t>(end) == size;
  });
  return ok;
}

// True if the numbers ascend strictly and are in [0, end).
template <typename Numbers, typename Number>
bool Ascend(const Numbers& numbers, int32_t end, Number number) {
  int32_t next = 0;
  for (const auto& n : numbers) {
    if (number(n) < next || number(n) >= end) return false;
    next = number(n) + 1;
  }
  return true;
}

bool Ascend(std::span<const int32_t> numbers, int32_t end) {
  return Ascend(numbers, end, [](int32_t n) { return n; });
}

Status CheckEntry(const StepPlan& plan, const Entry& entry) {
  const int32_t count = entry.num_tokens();
  if (count == 0) return Bad("an entry has no token");
  if (entry.begin < 0 || entry.begin > std::numeric_limits<int32_t>::max() - count ||
      entry.num_kept_pages < 0) {
    return Bad("an entry begins out of bounds");
  }
  const bool rows_ascend = Ascend(Part(plan.samples, entry.samples), count,
                                  [](const Sample& sample) { return sample.row; }) &&
                           Ascend(Part(plan.logits_rows, entry.logits_rows), count) &&
                           Ascend(Part(plan.hidden_rows, entry.hidden_rows), count);
  if (!rows_ascend) return Bad("rows are out of bounds or out of order");
  int32_t next = 0;
  for (const StepPlan::EmbeddingOverride& patch : Part(plan.overrides, entry.overrides)) {
    if (patch.rows.begin < next || patch.rows.end <= patch.rows.begin || patch.rows.end > count ||
        patch.first_row < 0) {
      return Bad("a patch is out of bounds");
    }
    next = patch.rows.end;
  }
  return OkStatus();
}

constexpr float kMostBias = 1e6f;  // a larger bias could make a logit infinite

bool IsId(int32_t id, int vocab) {
  return id >= 0 && id < vocab;
}

}  // namespace

Status CheckPlan(const StepPlan& plan) {
  if (plan.num_axes < 1 || plan.num_axes > kMaxAxes ||
      plan.positions.size() != plan.tokens.size() * plan.num_axes) {
    return Bad("there must be a position per axis and token");
  }
  if (!Cover(plan, plan.entries, kEntryParts) || !Cover(plan, plan.samples, kSampleParts)) {
    return Bad("ranges do not follow each other, or do not cover an array");
  }
  bool decodes = true;
  for (const Entry& entry : plan.entries) {
    if (entry.decodes && !decodes) return Bad("decodes come first");
    decodes = entry.decodes;
    KU_RETURN_IF_ERROR(CheckEntry(plan, entry));
  }
  for (const Sample& sample : plan.samples) {
    if (sample.index < 0) return Bad("the index of a sample is negative");
    KU_RETURN_IF_ERROR(CheckSampling(sample.params));
  }
  if (!Ascend(plan.hidden_layers, std::numeric_limits<int32_t>::max())) {
    return Bad("layers are out of order");
  }
  if (plan.hidden_layers.empty() != plan.hidden_rows.empty()) {
    return Bad("hidden rows and hidden layers need each other");
  }
  return OkStatus();
}

int StepPlan::num_decode_tokens() const {
  int count = 0;
  for (const Entry& entry : entries) count += entry.decodes ? entry.num_tokens() : 0;
  return count;
}

bool StepPlan::decode_only() const {
  return !entries.empty() && hidden_rows.empty() && overrides.empty() &&
         std::all_of(entries.begin(), entries.end(), [](const Entry& entry) {
           return entry.decodes && entry.num_tokens() == 1 && entry.samples.size() == 1 &&
                  entry.logits_rows.empty();
         });
}

void StepPlan::Clear() {
  num_axes = 1;
  const auto clear = [](auto&... arrays) { (arrays.clear(), ...); };
  clear(ended, copies, entries, tokens, positions, pages, samples, logits_rows, penalties, biases,
        allowed, hidden_layers, hidden_rows, overrides);
}

StepPlan::Entry& StepPlan::Open(int64_t sequence, int32_t begin) {
  Entry& entry = entries.emplace_back();
  entry.sequence = sequence;
  entry.begin = begin;
  if (entries.size() > 1) {
    const Entry& before = entries[entries.size() - 2];
    ForEach(kEntryParts,
            [&](const auto& part) { (entry.*part.range).begin = (before.*part.range).end; });
  }
  return entry;
}

void StepPlan::Close() {
  Entry& entry = entries.back();
  ForEach(kEntryParts,
          [&](const auto& part) { (entry.*part.range).end = SizeOf(this->*part.array); });
}

StepPlan StepPlan::Only(const std::function<bool(const Entry&)>& keep) const {
  StepPlan plan;
  plan.ended = ended;
  plan.num_axes = num_axes;
  plan.hidden_layers = hidden_layers;
  const auto append = [](auto& to, const auto& from, Range range) {
    to.insert(to.end(), from.begin() + range.begin, from.begin() + range.end);
    return Range{SizeOf(to) - range.size(), SizeOf(to)};
  };
  for (const Entry& entry : entries) {
    if (!keep(entry)) continue;
    plan.entries.push_back(entry);
    ForEach(kEntryParts, [&](const auto& part) {
      plan.entries.back().*part.range =
          append(plan.*part.array, this->*part.array, entry.*part.range);
    });
  }
  for (Sample& sample : plan.samples) {
    ForEach(kSampleParts, [&](const auto& part) {
      sample.*part.range = append(plan.*part.array, this->*part.array, sample.*part.range);
    });
  }
  for (int axis = 0; axis < num_axes; ++axis) {
    const int32_t first = axis * num_tokens();
    for (const Entry& entry : entries) {
      const Range rows{first + entry.tokens.begin, first + entry.tokens.end};
      if (keep(entry)) append(plan.positions, positions, rows);
    }
  }
  return plan;
}

void Resolve(const StepResult& before, StepPlan* plan) {
  for (TokenRef& token : plan->tokens) {
    if (token.is_known()) continue;
    const std::optional<int32_t> id = before.tokens.at(token.row());
    if (id.has_value()) token = TokenRef::Known(*id);
  }
}

Status CheckPlan(const StepPlan& plan, const PlanLimits& limits) {
  KU_RETURN_IF_ERROR(CheckPlan(plan));
  if (!plan.allowed.empty()) return Bad("this runner has no mask of tokens");
  const size_t num_outputs = plan.samples.size() + plan.logits_rows.size();
  if (plan.num_tokens() > limits.max_tokens ||
      plan.entries.size() > static_cast<size_t>(limits.max_seqs) ||
      plan.copies.size() > static_cast<size_t>(limits.max_seqs) ||
      plan.samples.size() > static_cast<size_t>(limits.max_samples) ||
      num_outputs > static_cast<size_t>(limits.max_outputs) ||
      plan.penalties.size() > static_cast<size_t>(limits.max_penalties) ||
      plan.biases.size() > static_cast<size_t>(limits.max_biases) ||
      plan.num_axes > limits.num_axes) {
    return Bad("more than fits a step");
  }
  for (const TokenRef token : plan.tokens) {
    if (token.is_known() ? !IsId(token.id(), limits.vocab) : token.row() >= limits.max_samples) {
      return Bad("no such token");
    }
  }
  for (const TokenCount& penalty : plan.penalties) {
    if (!IsId(penalty.token, limits.vocab) || penalty.count < 0) return Bad("no such penalty");
  }
  for (const TokenBias& bias : plan.biases) {
    if (!IsId(bias.token, limits.vocab) || !(bias.bias <= kMostBias)) return Bad("no such bias");
  }
  for (const int32_t position : plan.positions) {
    if (!IsId(position, limits.max_context)) return Bad("no such position");
  }
  for (const Entry& entry : plan.entries) {
    if (entry.end() > limits.max_context) return Bad("a sequence is longer than the context");
  }
  const auto is_page = [&](int32_t page) { return page > 0 && page < limits.num_pages; };
  if (!std::all_of(plan.pages.begin(), plan.pages.end(), is_page)) return Bad("no such page");
  for (const StepPlan::PageCopy& copy : plan.copies) {
    if (!is_page(copy.from) || !is_page(copy.to) || copy.num_tokens < 1) {
      return Bad("no such copy of a page");
    }
  }
  if (!plan.hidden_layers.empty() && plan.hidden_layers.back() >= limits.layers) {
    return Bad("no such layer");
  }
  return OkStatus();
}

}  // namespace kuiper
