// Compares the results of nvcc's and the C++ compiler's versions of a kernel: every launch runs
// both on the same memory. If both use the same arithmetic, the results are bitwise equal.
#pragma once

#include <functional>

#include "emulator/ptx_program.h"
#include "emulator/ptx_run.h"

namespace kuiper::simt::ptx {

// Call after the kernel has run from PTX; `before` holds the earlier contents of the buffers it
// accessed. Runs the other version from these contents and keeps its results. Ends the process if
// the results differ more than allowed. A kernel without approximate instructions allows no
// difference, others a few units in the last place of the largest value.
void Compare(const Kernel& kernel, const Contents& before, const std::function<void()>& run_other);

}  // namespace kuiper::simt::ptx
