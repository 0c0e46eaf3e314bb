// The instruction sets of the CPU kernels by name; the programs' tests limit a process to each.
#include "kuiper/kernels/cpu/cpu_target.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kuiper/kernels/cpu/linear/cpu_linear.h"
#include "kuiper/kernels/cpu/targets.h"
// After targets.h.
#include "hwy/targets.h"

namespace kuiper::cpu {
namespace {

TEST(CpuTarget, NamesWhatTheLinearLayersHave) {
  const std::vector<std::string> names = AllowedTargets(), sets = CpuLinear::InstructionSets();
  EXPECT_TRUE(std::is_permutation(names.begin(), names.end(), sets.begin(), sets.end()));
}

// Each release of Highway may add targets; the kernels are compiled for the following ones only.
TEST(CpuTarget, CompilesForTheListedInstructionSets) {
  int64_t best = HWY_STATIC_TARGET;
#ifndef HWY_COMPILE_ONLY_STATIC
#if HWY_ARCH_X86_64
  best |= HWY_AVX3 | HWY_AVX2 | HWY_SSE4;
#elif HWY_ARCH_ARM_A64
  best |= KU_NEON;
#endif
#endif
  const int64_t listed = HWY_AVX3 | HWY_AVX2 | HWY_SSE4 | KU_NEON | HWY_EMU128 | HWY_SCALAR;
  EXPECT_EQ(HWY_TARGETS & ~listed, 0);
  EXPECT_EQ(HWY_TARGETS & best, best & ((HWY_STATIC_TARGET - 1) | HWY_STATIC_TARGET));
  const std::string compiled = CompiledTargets();
  for (const std::string& name : AllowedTargets()) {
    EXPECT_NE(compiled.find(name), std::string::npos) << name << " in " << compiled;
  }
  EXPECT_EQ(compiled.find("NEON_"), std::string::npos) << compiled;
}

TEST(CpuTarget, HasNoOtherLimitOnceKernelsAreChosen) {
  ASSERT_FALSE(CpuLinear::KernelName().empty());
  const std::vector<std::string> names = AllowedTargets();
  EXPECT_TRUE(LimitToTarget(names.front()).ok());
  EXPECT_EQ(LimitToTarget("AVX").code(), StatusCode::kInvalidArgument);
  for (size_t i = 1; i < names.size(); ++i) {
    EXPECT_EQ(LimitToTarget(names[i]).code(), StatusCode::kUnavailable) << names[i];
  }
  EXPECT_EQ(AllowedTargets(), names);
}

}  // namespace
}  // namespace kuiper::cpu
