// Fuzzes the serialised form of a step plan: an accepted plan must serialise to the same bytes, and
// a runner must report whether it can execute it.
#include "kuiper/engine/step_plan.h"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kuiper/base/check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto plan = kuiper::ParseStepPlan({data, size});
  if (!plan.ok()) return 0;
  const std::string bytes = kuiper::Serialize(*plan);
  KU_CHECK(bytes == std::string_view(reinterpret_cast<const char*>(data), size));
  const kuiper::PlanLimits limits{.max_tokens = 64,
                                  .max_seqs = 8,
                                  .max_samples = 8,
                                  .max_outputs = 16,
                                  .max_penalties = 1000,
                                  .max_biases = 1000,
                                  .num_axes = 3,
                                  .max_context = 128,
                                  .num_pages = 100,
                                  .vocab = 1000,
                                  .layers = 8};
  if (!CheckPlan(*plan, limits).ok()) return 0;
  const auto part = plan->Only([](const auto& entry) { return entry.sequence % 2 == 0; });
  KU_CHECK(CheckPlan(part, limits).ok());
  return 0;
}
