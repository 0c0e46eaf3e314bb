// The instruction sets that the CPU kernels of this process may use. A limit makes it possible to
// test on one machine what older machines run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/status.h"

namespace kuiper::cpu {

// Returns the name of an instruction set of Highway (HWY_AVX3, ...), as in --cpu-target and the
// log.
const char* TargetName(int64_t target);
// Returns the Highway version and the instruction sets that the kernels were compiled for, best
// first: "Highway 1.2.0: AVX3_BF16, AVX3_VNNI, AVX3, AVX2, SSE4, SCALAR".
std::string CompiledTargets();

// Returns the instruction sets that this machine can run and the limit allows, best first
// (expected, not measured): {"AVX3_BF16", "AVX3_VNNI", "AVX3", "AVX2", ...}.
std::vector<std::string> AllowedTargets();
// Limits the process, from now on, to `name` (in upper or lower case) and lower instruction sets.
// kInvalidArgument if this machine lacks `name`; kUnavailable if kernels of a better instruction
// set have been chosen already. Thread safe.
Status LimitToTarget(std::string_view name);

// Fixes the current limit: later calls of LimitToTarget cannot change it.
void FreezeTargets();

// True if this machine has the extension of Highway's AVX3 and the limit allows it.
bool MayUseAvx512Vnni();
bool MayUseAvx512Bf16();
// True if the limit names AVX512-BF16; otherwise a measurement decides whether it is used.
bool MustUseAvx512Bf16();

}  // namespace kuiper::cpu
