// Lets the emulated device execute nvcc's versions of the kernels. If Options::ptx names a folder
// of .ptx files, launches run from these instead of the C++ compiler's versions. Called by the
// runtime.
#pragma once

#include <string>

#include "emulator/machine.h"

namespace kuiper::simt {

// Runs the kernel as Options say. With PTX it ends the process if no file contains the kernel.
void RunCall(const KernelCall& call);

// Returns the activity of every kernel of the folders since the last call: a line of column names
// (ptx_traffic.h), then one line per kernel. Empty if nothing has been launched from PTX yet.
std::string TakePtxReport();

}  // namespace kuiper::simt
