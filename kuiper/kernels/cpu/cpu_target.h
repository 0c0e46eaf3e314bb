// The instruction sets that the CPU kernels of this process may use. A limit lets one machine try
// what others run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kuiper/base/status.h"

namespace kuiper::cpu {

// The name of an instruction set of Highway (HWY_AVX3, ...) as --cpu-target and the log have it.
const char* TargetName(int64_t target);
// What the kernels of this build were compiled with and for, best first:
// "Highway 1.2.0: AVX3_BF16, AVX3_VNNI, AVX3, AVX2, SSE4, SCALAR".
std::string CompiledTargets();

// Those that this machine can run and that are allowed, best first as far as nothing is measured:
// {"AVX3_BF16", "AVX3_VNNI", "AVX3", "AVX2", ...}.
std::vector<std::string> AllowedTargets();
// Allows `name`, in any case, and what is below it for the rest of the process. kInvalidArgument
// where this machine lacks it; kUnavailable where kernels of a better one have been chosen already.
// Thread safe.
Status LimitToTarget(std::string_view name);

// There is no other limit from now on.
void KeepTargets();

// Whether this machine has what upgrades Highway's AVX3, and it is allowed.
bool MayUseAvx512Vnni();
bool MayUseAvx512Bf16();
// Whether it was asked for by name; else a measurement decides whether it is used.
bool MustUseAvx512Bf16();

}  // namespace kuiper::cpu
