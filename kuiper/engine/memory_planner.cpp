#include "kuiper/engine/memory_planner.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <vector>

namespace kuiper {
namespace {

std::string Gigabytes(size_t bytes) {
  char text[32];
  const int digits = bytes < 100'000'000 ? 3 : bytes < 1'000'000'000 ? 2 : 1;
  std::snprintf(text, sizeof(text), "%.*f", digits, bytes / 1e9);
  return text;
}

// Saturates far above the memory of any machine, so that sums with other sizes do not wrap around.
size_t KvBytes(const MemoryRequest& request, int64_t num_pages) {
  constexpr size_t kMost = std::numeric_limits<size_t>::max() / 4;
  const size_t null_pages = request.paged ? 1 : 0;
  size_t bytes = 0;
  const bool wraps = __builtin_mul_overflow(static_cast<size_t>(num_pages) + null_pages,
                                            request.kv.page_bytes(), &bytes);
  return wraps ? kMost : std::min(bytes, kMost);
}

// Pages, or cache rows, for `seqs` sequences of this context.
int64_t PagesForContext(const MemoryRequest& request, int context, int seqs) {
  if (!request.paged) return seqs;
  const int64_t page = request.kv.page_size;
  return (context + page - 1) / page * seqs;
}

// The fewest pages an engine can work with. Pages are allocated as sequences grow, so one whole
// context is enough. Cache rows are not shared, so each sequence needs one.
int64_t FewestPages(const MemoryRequest& request, int context) {
  return PagesForContext(request, context, request.paged ? 1 : request.max_seqs);
}

// The most pages that fit in `bytes`, together with the null page and as many swapped pages as fit.
int64_t PagesThatFit(const MemoryRequest& request, size_t bytes) {
  const auto pages = static_cast<int64_t>(bytes / request.kv.page_bytes()) - 1;
  if (request.swaps_to_host) return pages;
  const auto swap = static_cast<int64_t>(request.swap_bytes / request.kv.page_bytes());
  return std::max(pages - swap, pages / 2);
}

// "max_context 4096 would need 7.5 GB", for the largest powers of two that fit.
std::string FittingContexts(const MemoryRequest& request, size_t fixed, size_t budget) {
  std::string text;
  int listed = 0;
  int context = 1;
  while (context * 2 < request.max_context) context *= 2;
  for (; context >= 64 && listed < 2; context /= 2) {
    MemoryRequest smaller = request;
    smaller.max_context = context;
    if (!request.paged) smaller.kv.page_size = context;
    const size_t total = fixed + KvBytes(smaller, FewestPages(smaller, context));
    if (total > budget) continue;
    if (listed++ > 0) text += "; ";
    text += Param("max_context") + " " + std::to_string(context) + " would need " +
            Gigabytes(total) + " GB";
  }
  return text;
}

// If the device has enough memory but the permitted share is too small: the share that would be
// enough.
std::string HigherShare(const MemoryRequest& request, size_t needed) {
  if (needed > request.available_bytes) return "";
  const double share = static_cast<double>(needed) / static_cast<double>(request.available_bytes);
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", std::min(1.0, std::ceil(share * 1000) / 1000));
  return Param("gpu_memory_utilization") + " " + text + " would do";
}

// Suggests what to make smaller so that the plan fits; "" if nothing helps.
std::string SmallerPlan(const MemoryRequest& request, size_t fixed, size_t budget) {
  if (request.num_blocks.has_value()) {
    const size_t pages = budget > fixed ? (budget - fixed) / request.kv.page_bytes() : 0;
    if (pages > 1) return Param("num_blocks") + " " + std::to_string(pages - 1) + " would fit";
  } else if (request.kv_cache_bytes.has_value()) {
    const size_t megabytes = budget > fixed ? (budget - fixed) >> 20 : 0;
    if (megabytes << 20 >= 2 * request.kv.page_bytes()) {
      return Param("kv_cache_memory") + " " + std::to_string(megabytes) + "M would fit";
    }
  } else {
    return FittingContexts(request, fixed, budget);
  }
  return "";
}

std::string Hint(const MemoryRequest& request, const MemoryPlan& plan) {
  const size_t fixed = plan.total_bytes() - plan.kv_bytes;
  const bool is_given = request.num_blocks.has_value() || request.kv_cache_bytes.has_value();
  const size_t kv =
      is_given ? plan.kv_bytes : KvBytes(request, FewestPages(request, request.max_context));
  const std::string smaller = SmallerPlan(request, fixed, plan.budget_bytes);
  const std::string share = HigherShare(request, fixed + kv);
  if (smaller.empty() && share.empty()) return "no context length fits: use a smaller model";
  return smaller + (smaller.empty() || share.empty() ? "" : "\n") + share;
}

}  // namespace

std::string MemoryPlan::Describe() const {
  const auto part = [](const char* name, size_t bytes) {
    return bytes > 0 ? std::string(" + ") + name + " " + Gigabytes(bytes) + " GB" : std::string();
  };
  const std::string optional = part("graphs", graph_bytes) + part("encoder", encoder_bytes) +
                               part("pictures", picture_bytes) + part("swap", swap_bytes);
  char text[400];
  std::snprintf(text, sizeof(text),
                "memory plan: weights %s GB + activations %s GB + workspace %s GB%s + KV cache %s "
                "GB = %s GB of %s GB (limit %.3g%% of %s GB available)",
                Gigabytes(weight_bytes).c_str(), Gigabytes(activation_bytes).c_str(),
                Gigabytes(workspace_bytes).c_str(), optional.c_str(), Gigabytes(kv_bytes).c_str(),
                Gigabytes(total_bytes()).c_str(), Gigabytes(budget_bytes).c_str(),
                utilization * 100, Gigabytes(available_bytes).c_str());
  if (host_swap_bytes == 0) return text;
  return std::string(text) + ", and swap " + Gigabytes(host_swap_bytes) + " GB of host memory";
}

StatusOr<MemoryPlan> CountMemory(const MemoryRequest& request) {
  MemoryPlan plan;
  plan.weight_bytes = request.weight_bytes;
  plan.activation_bytes = request.activation_bytes;
  plan.workspace_bytes = request.workspace_bytes;
  plan.graph_bytes = request.graph_bytes;
  plan.encoder_bytes = request.encoder_bytes;
  plan.picture_bytes = request.picture_bytes;
  plan.available_bytes = request.available_bytes;
  plan.utilization = request.utilization;
  plan.budget_bytes = static_cast<size_t>(request.available_bytes * request.utilization);

  const size_t fixed = plan.total_bytes();
  int64_t num_pages = PagesForContext(request, request.max_context, request.max_seqs);
  if (request.num_blocks.has_value()) {
    num_pages = *request.num_blocks;
  } else if (request.paged && !request.kv_cache_bytes.has_value() && plan.budget_bytes > fixed) {
    // Use the whole budget if it holds a context for some of the sequences but not for all.
    num_pages = std::clamp(PagesThatFit(request, plan.budget_bytes - fixed),
                           FewestPages(request, request.max_context), num_pages);
  }
  if (request.kv_cache_bytes.has_value()) {
    const size_t pages = *request.kv_cache_bytes / request.kv.page_bytes();
    if (pages < 2) {  // one is the null page
      return Status(StatusCode::kResourceExhausted,
                    "a KV cache of " + std::to_string(*request.kv_cache_bytes) +
                        " bytes holds no block (one block is " +
                        std::to_string(request.kv.page_bytes()) + " bytes, and one is reserved)",
                    "raise " + Param("kv_cache_memory"));
    }
    num_pages = static_cast<int64_t>(std::min<size_t>(pages - 1, num_pages));
  }
  plan.kv_bytes = KvBytes(request, num_pages);
  const size_t page_bytes = request.kv.page_bytes();
  (request.swaps_to_host ? plan.host_swap_bytes : plan.swap_bytes) =
      std::min<size_t>(num_pages, request.swap_bytes / page_bytes) * page_bytes;
  // A slot (page * page_size + offset) is an int32 in the batch arrays.
  if (plan.fits() && (num_pages + 1) * request.kv.page_size > std::numeric_limits<int32_t>::max()) {
    return Status(StatusCode::kInvalidArgument,
                  "a KV cache of " + std::to_string(num_pages) + " blocks of " +
                      std::to_string(request.kv.page_size) + " tokens is too large");
  }
  plan.num_pages = static_cast<int>(std::min<int64_t>(num_pages, INT32_MAX));
  return plan;
}

StatusOr<MemoryPlan> PlanMemory(const MemoryRequest& request) {
  KU_ASSIGN_OR_RETURN(const MemoryPlan plan, CountMemory(request));
  if (plan.fits()) return plan;
  char text[300];
  std::snprintf(text, sizeof(text),
                "needs %s GB (weights %s, KV %s, workspace %s) but %s GB is available (limit "
                "%.3g%% of %s GB)",
                Gigabytes(plan.total_bytes()).c_str(), Gigabytes(plan.weight_bytes).c_str(),
                Gigabytes(plan.kv_bytes).c_str(),
                Gigabytes(plan.total_bytes() - plan.weight_bytes - plan.kv_bytes).c_str(),
                Gigabytes(plan.budget_bytes).c_str(), request.utilization * 100,
                Gigabytes(plan.available_bytes).c_str());
  return Status(StatusCode::kResourceExhausted, text, Hint(request, plan));
}

int LargestContext(int limit, const std::function<MemoryRequest(int context)>& request_of) {
  const auto fits = [&](int context) {
    const MemoryRequest request = request_of(context);
    const StatusOr<MemoryPlan> plan = PlanMemory(request);
    return plan.ok() && int64_t{plan->num_pages} * request.kv.page_size >= context;
  };
  int largest = 0;
  for (int too_long = limit + 1; largest + 1 < too_long;) {
    const int middle = largest + (too_long - largest) / 2;
    (fits(middle) ? largest : too_long) = middle;
  }
  return largest;
}

}  // namespace kuiper
