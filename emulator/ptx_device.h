// The emulated device as one that executes what nvcc makes of the kernels: where Options::ptx names
// a folder of .ptx files, launches run from there instead of from what the C++ compiler made.
// Called by the runtime.
#pragma once

#include <string>

#include "emulator/machine.h"

namespace kuiper::simt {

// Runs the kernel in the way Options say. With PTX it ends the process when no file has the kernel.
void RunCall(const KernelCall& call);

// What every kernel of the folders did since the last call: a line of names (ptx_traffic.h), then
// one per kernel. Empty when nothing was launched from PTX yet.
std::string TakePtxReport();

}  // namespace kuiper::simt
