// Runs kernels from PTX: blocks one after another, the warps of a block in turn, each as far as it
// can. Diverged lanes form groups. The group at the lowest instruction runs first; groups that
// reach the same instruction merge. Options::schedule determines the order of blocks and warps and
// when copies complete. A kernel that breaks a rule ends the process.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "emulator/machine.h"
#include "emulator/ptx_program.h"
#include "emulator/ptx_traffic.h"

namespace kuiper::simt::ptx {

struct Usage {
  uint64_t launches = 0, blocks = 0, warp_instructions = 0;
  size_t dynamic_shared = 0;       // maximum bytes that a launch requested
  std::vector<uint64_t> executed;  // per instruction: executions by warps
  bool counts_traffic = false;
  std::vector<Traffic> traffic;  // per instruction; empty if not counted
};

// Contents of device buffers by their addresses.
using Contents = std::map<char*, std::vector<char>>;

// Runs a launch. parameters [kernel.parameter_bytes]. Adds to `usage`. If `before` is not null,
// also adds the previous contents of each buffer that the kernel accesses.
void Run(const Kernel& kernel, const LaunchShape& shape, const char* parameters, Usage* usage,
         Contents* before = nullptr);

}  // namespace kuiper::simt::ptx
