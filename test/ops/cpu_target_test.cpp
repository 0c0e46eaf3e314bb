// The instruction sets of the CPU kernels by name; the programs' tests limit a process to each.
#include "kuiper/kernels/cpu/cpu_target.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kuiper/kernels/cpu/cpu_linear.h"

namespace kuiper::cpu {
namespace {

TEST(CpuTarget, NamesWhatTheLinearLayersHave) {
  const std::vector<std::string> names = AllowedTargets(), sets = CpuLinear::InstructionSets();
  EXPECT_TRUE(std::is_permutation(names.begin(), names.end(), sets.begin(), sets.end()));
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
