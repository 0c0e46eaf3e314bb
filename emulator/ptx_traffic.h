// What the memory accesses of a kernel cost, counted from the addresses of the lanes as it runs,
// and the kinds its instructions are of. For the report of ptx_device.cpp and tests; a kernel that
// runs without a report is not slowed.
//
// A request is one warp's execution of an instruction with at least one lane. Global memory moves
// sectors: the aligned pieces of 32 bytes that a request touches. Shared memory has 32 banks of 4
// bytes and serves a request in wavefronts, each of which gives every bank one word; lanes that
// want the same word share it. Accesses of 8 bytes a lane go as two halves of a warp, those of 16
// bytes, ldmatrix (a row a lane) and what cp.async writes as four quarters. (CUDA C++ Programming
// Guide, "Shared Memory"; Best Practices Guide, "Coalesced Access to Global Memory".) Atomics of
// several lanes on one word count as one access of it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "emulator/ptx_program.h"

namespace kuiper::simt::ptx {

struct Traffic {                                                // of one instruction of a kernel
  uint64_t global_requests = 0, global_bytes = 0, sectors = 0;  // bytes: what the lanes ask for
  uint64_t shared_requests = 0, shared_bytes = 0, wavefronts = 0;
  uint64_t ideal_wavefronts = 0;  // without conflicts: one for every part of the warp with lanes
  // The most bytes of asynchronous copies that a thread had under way when it waited for some.
  uint64_t copies_under_way = 0;

  uint64_t conflicts() const { return wavefronts - ideal_wavefronts; }
  void Add(const Traffic& other);
};

// A request of the lanes of `mask` for `bytes` each at their addresses: in global memory, or from
// the start of shared memory.
void CountGlobal(const uint64_t (&addresses)[kLanes], uint32_t mask, uint32_t bytes, Traffic* t);
void CountShared(const uint64_t (&addresses)[kLanes], uint32_t mask, uint32_t bytes, Traffic* t);

// What an instruction is for.
enum class Work : uint8_t {
  kInteger,  // arithmetic, comparisons and bits, addresses included
  kFloat,
  kConvert,
  kMove,  // between registers, and from what the device gives (%tid)
  kTensor,
  kShuffle,  // and votes
  kGlobalLoad,
  kGlobalStore,
  kSharedLoad,
  kSharedStore,
  kGenericLoad,  // of an address of any memory
  kGenericStore,
  kMatrixLoad,
  kAsyncCopy,
  kAtomic,
  kParameterLoad,
  kBarrier,  // of blocks, warps, memory and groups of copies
  kBranch,
};
inline constexpr size_t kNumWorks = static_cast<size_t>(Work::kBranch) + 1;
inline constexpr const char* kWorkNames[kNumWorks] = {
    "integer",     "float",        "convert",     "move",           "tensor",       "shuffle",
    "global_load", "global_store", "shared_load", "shared_store",   "generic_load", "generic_store",
    "matrix_load", "async_copy",   "atomic",      "parameter_load", "barrier",      "branch"};

// From the text of an instruction; ends the process when its opcode has no kind.
Work WorkOf(const std::string& text);

struct Usage;
// Instructions that warps executed, by kind.
std::array<uint64_t, kNumWorks> CountWork(const Kernel& kernel, const Usage& usage);

// The report of kernels: the names of its columns and a line of them, each with tabs and without
// its end. `name` is what the line begins with.
std::string ReportHeader();
std::string ReportLine(const std::string& name, const Kernel& kernel, const Usage& usage);

}  // namespace kuiper::simt::ptx
