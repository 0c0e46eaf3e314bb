#include "kuiper/engine/step_plan.h"

#include <algorithm>
#include <limits>

namespace kuiper {
namespace {

Status Bad(const std::string& what) {
  return Status(StatusCode::kInvalidArgument, "step plan: " + what);
}

// Sees whether ranges follow each other and cover an array.
class Cover {
 public:
  explicit Cover(size_t size) : size_(size) {}
  bool Next(Range range) {
    const bool follows = range.begin == end_ && range.begin <= range.end;
    end_ = range.end;
    return follows && static_cast<size_t>(range.end) <= size_;
  }
  bool done() const { return static_cast<size_t>(end_) == size_; }

 private:
  size_t size_;
  int32_t end_ = 0;
};

// Of all ranges of a plan.
struct Covers {
  explicit Covers(const StepPlan& plan)
      : tokens(plan.tokens.size()),
        pages(plan.pages.size()),
        samples(plan.samples.size()),
        logits_rows(plan.logits_rows.size()),
        hidden_rows(plan.hidden_rows.size()),
        patches(plan.patches.size()),
        penalties(plan.penalties.size()),
        biases(plan.biases.size()),
        allowed(plan.allowed.size()) {}

  bool Next(const StepPlan::Entry& e) {
    return tokens.Next(e.tokens) && pages.Next(e.pages) && samples.Next(e.samples) &&
           logits_rows.Next(e.logits_rows) && hidden_rows.Next(e.hidden_rows) &&
           patches.Next(e.patches);
  }
  bool Next(const StepPlan::Sample& s) {
    return penalties.Next(s.penalties) && biases.Next(s.biases) && allowed.Next(s.allowed);
  }
  bool done() const {
    return tokens.done() && pages.done() && samples.done() && logits_rows.done() &&
           hidden_rows.done() && patches.done() && penalties.done() && biases.done() &&
           allowed.done();
  }

  Cover tokens, pages, samples, logits_rows, hidden_rows, patches, penalties, biases, allowed;
};

// Whether the numbers ascend and lie in [0, end).
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

Status CheckEntry(const StepPlan& plan, const StepPlan::Entry& entry) {
  const int32_t count = entry.num_tokens();
  if (count == 0) return Bad("an entry has no token");
  if (entry.begin < 0 || entry.begin > std::numeric_limits<int32_t>::max() - count ||
      entry.num_kept_pages < 0) {
    return Bad("an entry begins out of bounds");
  }
  const bool rows_ascend = Ascend(Part(plan.samples, entry.samples), count,
                                  [](const StepPlan::Sample& sample) { return sample.row; }) &&
                           Ascend(Part(plan.logits_rows, entry.logits_rows), count) &&
                           Ascend(Part(plan.hidden_rows, entry.hidden_rows), count);
  if (!rows_ascend) return Bad("rows are out of bounds or out of order");
  int32_t next = 0;
  for (const StepPlan::Patch& patch : Part(plan.patches, entry.patches)) {
    if (patch.rows.begin < next || patch.rows.end <= patch.rows.begin || patch.rows.end > count) {
      return Bad("a patch is out of bounds");
    }
    next = patch.rows.end;
  }
  return OkStatus();
}

bool IsId(int32_t id, int vocab) {
  return id >= 0 && id < vocab;
}

}  // namespace

Status CheckPlan(const StepPlan& plan) {
  if (plan.num_axes < 1 || plan.num_axes > kMaxAxes ||
      plan.positions.size() != plan.tokens.size() * plan.num_axes) {
    return Bad("there must be a position per axis and token");
  }
  Covers covers(plan);
  bool decodes = true;
  for (const StepPlan::Entry& entry : plan.entries) {
    if (!covers.Next(entry)) return Bad("the ranges of an entry do not follow those before");
    if (entry.decodes && !decodes) return Bad("decodes come first");
    decodes = entry.decodes;
    KU_RETURN_IF_ERROR(CheckEntry(plan, entry));
  }
  for (const StepPlan::Sample& sample : plan.samples) {
    if (!covers.Next(sample)) return Bad("the ranges of a sample do not follow those before");
    if (sample.index < 0) return Bad("a token has no place among those generated");
    KU_RETURN_IF_ERROR(CheckSampling(sample.params));
  }
  if (!covers.done()) return Bad("an array is longer than its ranges");
  if (!Ascend(plan.hidden_layers, std::numeric_limits<int32_t>::max())) {
    return Bad("layers are out of order");
  }
  if (plan.hidden_layers.empty() != plan.hidden_rows.empty()) {
    return Bad("hidden rows need layers, and layers rows");
  }
  return OkStatus();
}

bool StepPlan::decode_only() const {
  return !entries.empty() && hidden_rows.empty() &&
         std::all_of(entries.begin(), entries.end(), [](const Entry& entry) {
           return entry.decodes && entry.num_tokens() == 1 && entry.samples.size() == 1 &&
                  entry.logits_rows.empty();
         });
}

void StepPlan::Clear() {
  num_axes = 1;
  const auto clear = [](auto&... arrays) { (arrays.clear(), ...); };
  clear(ended, copies, entries, tokens, positions, pages, samples, logits_rows, penalties, biases,
        allowed, hidden_layers, hidden_rows, patches);
}

StepPlan::Entry& StepPlan::Open(int64_t sequence, int32_t begin) {
  const auto open = [](Range* range, const auto& array) {
    range->begin = range->end = static_cast<int32_t>(array.size());
  };
  Entry& entry = entries.emplace_back();
  entry.sequence = sequence;
  entry.begin = begin;
  open(&entry.tokens, tokens);
  open(&entry.pages, pages);
  open(&entry.samples, samples);
  open(&entry.logits_rows, logits_rows);
  open(&entry.hidden_rows, hidden_rows);
  open(&entry.patches, patches);
  return entry;
}

void StepPlan::Close() {
  const auto close = [](Range* range, const auto& array) {
    range->end = static_cast<int32_t>(array.size());
  };
  Entry& entry = entries.back();
  close(&entry.tokens, tokens);
  close(&entry.pages, pages);
  close(&entry.samples, samples);
  close(&entry.logits_rows, logits_rows);
  close(&entry.hidden_rows, hidden_rows);
  close(&entry.patches, patches);
}

StepPlan StepPlan::Only(const std::function<bool(const Entry&)>& keep) const {
  StepPlan plan;
  plan.ended = ended;
  plan.num_axes = num_axes;
  plan.hidden_layers = hidden_layers;
  std::vector<std::vector<int32_t>> axes(num_axes);
  const auto append = [](auto& to, const auto& from, Range range) {
    const int32_t begin = static_cast<int32_t>(to.size());
    to.insert(to.end(), from.begin() + range.begin, from.begin() + range.end);
    return Range{begin, static_cast<int32_t>(to.size())};
  };
  for (const Entry& entry : entries) {
    if (!keep(entry)) continue;
    Entry& kept = plan.Open(entry.sequence, entry.begin);
    kept.decodes = entry.decodes;
    kept.num_kept_pages = entry.num_kept_pages;
    append(plan.tokens, tokens, entry.tokens);
    for (int axis = 0; axis < num_axes; ++axis) {
      const int32_t first = axis * num_tokens();
      append(axes[axis], positions, {first + entry.tokens.begin, first + entry.tokens.end});
    }
    append(plan.pages, pages, entry.pages);
    for (Sample sample : Part(samples, entry.samples)) {
      sample.penalties = append(plan.penalties, penalties, sample.penalties);
      sample.biases = append(plan.biases, biases, sample.biases);
      sample.allowed = append(plan.allowed, allowed, sample.allowed);
      plan.samples.push_back(sample);
    }
    append(plan.logits_rows, logits_rows, entry.logits_rows);
    append(plan.hidden_rows, hidden_rows, entry.hidden_rows);
    append(plan.patches, patches, entry.patches);
    plan.Close();
  }
  for (const std::vector<int32_t>& axis : axes) {
    plan.positions.insert(plan.positions.end(), axis.begin(), axis.end());
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
  if (!plan.biases.empty() || !plan.allowed.empty() || !plan.patches.empty()) {
    return Bad("this runner has no logit bias, no mask of tokens and no patch of embeddings");
  }
  const size_t num_outputs = plan.samples.size() + plan.logits_rows.size();
  if (plan.num_tokens() > limits.max_tokens ||
      plan.entries.size() > static_cast<size_t>(limits.max_seqs) ||
      plan.copies.size() > static_cast<size_t>(limits.max_seqs) ||
      plan.samples.size() > static_cast<size_t>(limits.max_samples) ||
      num_outputs > static_cast<size_t>(limits.max_outputs) ||
      plan.penalties.size() > static_cast<size_t>(limits.max_penalties) ||
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
  for (const int32_t position : plan.positions) {
    if (!IsId(position, limits.max_context)) return Bad("no such position");
  }
  for (const StepPlan::Entry& entry : plan.entries) {
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
