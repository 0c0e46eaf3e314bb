// The emulated CUDA device: one fiber per CUDA thread, blocks one after another on the calling OS
// thread. A thread runs until it reaches a barrier or a warp operation; there it waits for the
// threads the operation names, and the last one to arrive does the exchange for all of them.
//
// Tests set options; kernels use it through dialect.h only. A kernel that breaks a rule of the
// programming model ends the process with a report of who waits where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "emulator/vector_types.h"

namespace kuiper::simt {

// ---- what a test may set ------------------------------------------------------------------------

// Which runnable thread, woken lane and block goes next, and when an asynchronous copy lands.
enum class Schedule {
  kInOrder,   // ascending; copies land when they are waited for
  kReversed,  // descending; copies land at once
  kShuffled,  // by Options::seed
};

struct Options {
  Schedule schedule = Schedule::kInOrder;
  uint64_t seed = 1;
  bool eager_streams = false;  // run stream work when it is queued, to see the host's call stack
  int num_sms = 4;             // what the device reports; results must not depend on it
  int arch = 87;               // its compute capability: 80, 86, 87, 89 or 90
  // A folder of .ptx files to run the kernels from; empty: what the C++ compiler made of them.
  std::string ptx;
  std::string ptx_report;    // a file that gets TakePtxReport() at the end
  bool ptx_traffic = false;  // count what accesses of memory cost; with a report always
  bool ptx_compare = false;  // run every launch in both ways; it ends the process where they differ
};
// Initially from the environment: KUIPER_SIMT_SCHEDULE=in_order|reversed|shuffled[:SEED],
// KUIPER_SIMT_EAGER=1, KUIPER_SIMT_SMS=N, KUIPER_SIMT_ARCH=N, KUIPER_SIMT_PTX=FOLDER,
// KUIPER_SIMT_PTX_REPORT=FILE and KUIPER_SIMT_PTX_COMPARE=1.
Options& CurrentOptions();

inline constexpr int kMaxThreads = 1024;  // per block
inline constexpr size_t kStaticSharedBytes =
    size_t{48} * 1024;                                          // what a kernel gets without asking
inline constexpr size_t kMostSharedBytes = size_t{227} * 1024;  // per block of any architecture
// What a kernel may ask for on Options::arch (CUDA C++ programming guide, table "Technical
// Specifications per Compute Capability").
size_t MaxSharedBytes();

// ---- between the dialect and the scheduler ------------------------------------------------------

struct LaunchShape {
  dialect::dim3 grid, block;
  size_t shared_bytes = 0;                   // dynamic
  size_t shared_limit = kStaticSharedBytes;  // of these and of variables together
};

struct KernelCall {
  const void* address;  // what the C++ compiler made of the kernel
  // Mangled, of the type std::integral_constant of that pointer; null: PTX is not to have it.
  const char* name;
  LaunchShape shape;
  std::function<void()> body;    // one CUDA thread
  std::vector<char> parameters;  // as the device lays them out
};

// Runs a kernel as the C++ compiler made it; `body` is one CUDA thread.
void RunKernel(const LaunchShape& shape, const std::function<void()>& body);

// The operation a thread is waiting in, and where.
struct Site {
  const char* op;
  const char* file;
  int line;
};

// Runs once per collective in the thread that arrives last; args[i] is what lane i passed, null if
// it does not take part.
using Exchange = void (*)(void* const* args);

void WarpCollective(unsigned mask, const Site& site, bool orders_memory, Exchange fn, void* arg);
// All threads of the block that have not exited.
void BlockBarrier(const Site& site);
void MemoryFence();
unsigned LaneId();
int ThreadIndex();      // in the block
bool CopyLandsEarly();  // what the schedule wants for the next asynchronous copy

// Ends the process with a line on standard error.
[[noreturn]] void Die(const std::string& what);
// The same: the running thread broke a rule.
[[noreturn]] void Fail(const std::string& what, const Site* site = nullptr,
                       const Site* other = nullptr);

}  // namespace kuiper::simt
