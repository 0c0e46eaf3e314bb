// Runs kernels from PTX: blocks one after another, the warps of a block in turns, each as far as it
// can go. Lanes that part form groups; the group at the lowest instruction goes first, and groups
// that meet go on together. The order of blocks and warps and when copies land follow
// Options::schedule. A kernel that breaks a rule ends the process.
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
  size_t dynamic_shared = 0;       // the most bytes that a launch asked for
  std::vector<uint64_t> executed;  // by a warp: of each instruction
  bool counts_traffic = false;
  std::vector<Traffic> traffic;  // of each instruction, if counted
};

// What device buffers held, by their addresses.
using Contents = std::map<char*, std::vector<char>>;

// parameters [kernel.parameter_bytes]; adds to `usage`, and to `before`, unless null, what each
// buffer that the kernel touches held until then.
void Run(const Kernel& kernel, const LaunchShape& shape, const char* parameters, Usage* usage,
         Contents* before = nullptr);

}  // namespace kuiper::simt::ptx
