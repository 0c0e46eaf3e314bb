#include "kuiper/kernels/cpu/cpu_target.h"

#include <algorithm>
#include <cctype>
#include <mutex>

#include "kuiper/base/text.h"
#include "kuiper/kernels/cpu/avx512_attributes.h"
#include "kuiper/kernels/cpu/targets.h"
// Include after targets.h; highway.h defines the version.
#include "hwy/highway.h"
#include "hwy/targets.h"

namespace kuiper::cpu {
namespace {

constexpr const char* kVnni = "AVX3_VNNI";
constexpr const char* kBf16 = "AVX3_BF16";

struct Limit {
  std::mutex mutex;
  std::string name;  // empty: none
  bool in_use = false;
};
Limit& TheLimit() {
  static Limit limit;
  return limit;
}

// True if the CPU has (`has`) the extension `name` of Highway's AVX3 and the limit allows it.
bool MayUse(bool has, std::string_view name) {
  Limit& limit = TheLimit();
  const std::lock_guard lock(limit.mutex);
  return has && (limit.name.empty() || limit.name == kBf16 || limit.name == name);
}

// Returns the names of the targets in the bits of `targets`, best first, with the extensions of
// AVX3.
std::vector<std::string> Names(int64_t targets, bool has_bf16, bool has_vnni) {
  std::vector<std::string> names;
  while (targets != 0) {
    const int64_t target = targets & -targets;
    targets &= targets - 1;
    if (target == HWY_AVX3) {
      if (has_bf16) names.emplace_back(kBf16);
      if (has_vnni) names.emplace_back(kVnni);
    }
    names.emplace_back(TargetName(target));
  }
  return names;
}

std::string Joined(const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
  return list;
}

}  // namespace

const char* TargetName(int64_t target) {
  return target == KU_NEON ? "NEON" : hwy::TargetName(target);
}

std::string CompiledTargets() {
  return "Highway " + std::to_string(HWY_MAJOR) + "." + std::to_string(HWY_MINOR) + "." +
         std::to_string(HWY_PATCH) + ": " +
         Joined(Names(HWY_TARGETS, KU_HAS_AVX512_ATTRIBUTES, KU_HAS_AVX512_ATTRIBUTES));
}

std::vector<std::string> AllowedTargets() {
  Limit& limit = TheLimit();
  const std::lock_guard lock(limit.mutex);
  std::vector<std::string> names =
      Names(hwy::SupportedTargets() & HWY_TARGETS, HasAvx512Bf16(), HasAvx512Vnni());
  names.erase(names.begin(), limit.name.empty()
                                 ? names.begin()
                                 : std::find(names.begin(), names.end(), limit.name));
  return names;
}

Status LimitToTarget(std::string_view any_case) {
  std::string name(any_case);
  for (char& c : name) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  const std::vector<std::string> allowed = AllowedTargets();
  if (std::find(allowed.begin(), allowed.end(), name) == allowed.end()) {
    return Status(StatusCode::kInvalidArgument,
                  "there are no CPU kernels " + Quoted(any_case) + " for this machine",
                  Param("cpu_target") + " is one of " + Joined(allowed));
  }
  Limit& limit = TheLimit();
  const std::lock_guard lock(limit.mutex);
  if (limit.in_use) {
    if (name == allowed.front()) return OkStatus();
    return Status(StatusCode::kUnavailable,
                  "the CPU kernels of this process run as " + allowed.front() + " already");
  }
  limit.name = name;
  int64_t better = 0;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    const bool is_avx512 = target == HWY_AVX3 && (name == kBf16 || name == kVnni);
    if (is_avx512 || name == TargetName(target)) break;
    better |= target;
  }
  hwy::DisableTargets(better);
  hwy::GetChosenTarget().DeInit();
  return OkStatus();
}

void FreezeTargets() {
  Limit& limit = TheLimit();
  const std::lock_guard lock(limit.mutex);
  limit.in_use = true;
}

bool MayUseAvx512Vnni() {
  return MayUse(HasAvx512Vnni(), kVnni);
}
bool MayUseAvx512Bf16() {
  return MayUse(HasAvx512Bf16(), kBf16);
}
bool MustUseAvx512Bf16() {
  Limit& limit = TheLimit();
  const std::lock_guard lock(limit.mutex);
  return HasAvx512Bf16() && limit.name == kBf16;
}

}  // namespace kuiper::cpu
