// What nvcc and the C++ compiler made of a kernel, side by side: every launch runs in both ways on
// the same memory. Where both use the same arithmetic, the results are the same bits.
#pragma once

#include <functional>

#include "emulator/ptx_program.h"
#include "emulator/ptx_run.h"

namespace kuiper::simt::ptx {

// Called when the kernel has run from PTX; `before` is what the buffers it touched held then. Runs
// the other one from there, whose results stay, and ends the process where they differ by more than
// the kernel may: a kernel without approximate instructions not at all, others by a few units of
// the last place of the largest value.
void Compare(const Kernel& kernel, const Contents& before, const std::function<void()>& run_other);

}  // namespace kuiper::simt::ptx
