// Counts the cost of a kernel's memory accesses from the addresses of the lanes while it runs, and
// the kinds of its instructions. Used for the report of ptx_device.cpp and by tests; without a
// report nothing is counted, so a kernel is not slowed.
//
// A request is one warp's execution of an instruction with at least one lane. Global memory moves
// sectors: the aligned 32-byte pieces that a request touches. Shared memory has 32 banks of 4 bytes
// and serves a request in wavefronts. In each wavefront every bank delivers one word; lanes that
// need the same word share it. Accesses of 8 bytes per lane are split into two halves of a warp.
// Accesses of 16 bytes, ldmatrix (one row per lane) and writes of cp.async are split into four
// quarters. (CUDA C++ Programming Guide, "Shared Memory"; Best Practices Guide, "Coalesced Access
// to Global Memory".) Atomics of several lanes on one word count as one access of it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "emulator/ptx_program.h"

namespace kuiper::simt::ptx {

struct Traffic {                                                // traffic of one instruction
  uint64_t global_requests = 0, global_bytes = 0, sectors = 0;  // bytes: what the lanes ask for
  uint64_t shared_requests = 0, shared_bytes = 0, wavefronts = 0;
  uint64_t ideal_wavefronts = 0;  // without conflicts: one per part of the warp with lanes
  // Maximum bytes of asynchronous copies that a thread had in flight when it waited for some.
  uint64_t copies_under_way = 0;

  uint64_t conflicts() const { return wavefronts - ideal_wavefronts; }
  void Add(const Traffic& other);
};

// Counts a request of the lanes of `mask` for `bytes` each. Addresses are in global memory, or are
// offsets in shared memory.
void CountGlobal(const uint64_t (&addresses)[kLanes], uint32_t mask, uint32_t bytes, Traffic* t);
void CountShared(const uint64_t (&addresses)[kLanes], uint32_t mask, uint32_t bytes, Traffic* t);

// The kinds of instructions.
enum class Work : uint8_t {
  kInteger,  // arithmetic, comparisons, bits, address computation
  kFloat,
  kConvert,
  kMove,  // between registers, and from special registers (%tid)
  kTensor,
  kShuffle,  // shuffles and votes
  kGlobalLoad,
  kGlobalStore,
  kSharedLoad,
  kSharedStore,
  kGenericLoad,  // from a generic address
  kGenericStore,
  kMatrixLoad,
  kAsyncCopy,
  kAtomic,
  kParameterLoad,
  kBarrier,  // barriers, memory fences, commits and waits of copies
  kBranch,
};
inline constexpr size_t kNumWorks = static_cast<size_t>(Work::kBranch) + 1;
inline constexpr const char* kWorkNames[kNumWorks] = {
    "integer",     "float",        "convert",     "move",           "tensor",       "shuffle",
    "global_load", "global_store", "shared_load", "shared_store",   "generic_load", "generic_store",
    "matrix_load", "async_copy",   "atomic",      "parameter_load", "barrier",      "branch"};

// Returns the kind of an instruction from its text; ends the process if its opcode has no kind.
Work WorkOf(const std::string& text);

struct Usage;
// Returns the number of instructions that warps executed, by kind.
std::array<uint64_t, kNumWorks> CountWork(const Kernel& kernel, const Usage& usage);

// The report of kernels: a line of column names and one line per kernel, separated by tabs, without
// line ends. `name` begins the line.
std::string ReportHeader();
std::string ReportLine(const std::string& name, const Kernel& kernel, const Usage& usage);

}  // namespace kuiper::simt::ptx
