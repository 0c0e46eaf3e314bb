// The emulated CUDA device: one fiber per CUDA thread, blocks one after another on the calling OS
// thread. A thread runs until it reaches a barrier or a warp operation. There it waits for the
// threads that take part; the last one to arrive does the exchange for all of them.
//
// Tests set options; kernels use the device only through dialect.h. A kernel that breaks a rule of
// the programming model ends the process with a report of where each thread waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "emulator/vector_types.h"

namespace kuiper::simt {

// ---- options for tests --------------------------------------------------------------------------

// The order of runnable threads, woken lanes and blocks, and when an asynchronous copy completes.
enum class Schedule {
  kInOrder,   // ascending; copies complete when they are waited for
  kReversed,  // descending; copies complete at once
  kShuffled,  // random, from Options::seed
};

struct Options {
  Schedule schedule = Schedule::kInOrder;
  uint64_t seed = 1;
  bool eager_streams = false;  // run stream work when queued, to show the host's call stack
  int num_sms = 4;             // reported by the device; results must not depend on it
  int arch = 87;               // compute capability: 80, 86, 87, 89 or 90
  // A folder of .ptx files to run the kernels from. If empty, the C++ compiler's versions run.
  std::string ptx;
  std::string ptx_report;    // a file that receives TakePtxReport() at exit
  bool ptx_traffic = false;  // count the cost of memory accesses; always on with a report
  bool ptx_compare = false;  // run both versions of every launch; end on a difference
};
// Initially from the environment: KUIPER_SIMT_SCHEDULE=in_order|reversed|shuffled[:SEED],
// KUIPER_SIMT_EAGER=1, KUIPER_SIMT_SMS=N, KUIPER_SIMT_ARCH=N, KUIPER_SIMT_PTX=FOLDER,
// KUIPER_SIMT_PTX_REPORT=FILE and KUIPER_SIMT_PTX_COMPARE=1.
Options& CurrentOptions();

inline constexpr int kMaxThreads = 1024;                         // per block
inline constexpr size_t kStaticSharedBytes = size_t{48} * 1024;  // unless a kernel requests more
inline constexpr size_t kMostSharedBytes = size_t{227} * 1024;   // per block, any architecture
// Maximum that a kernel may request on Options::arch (CUDA C++ programming guide, table "Technical
// Specifications per Compute Capability").
size_t MaxSharedBytes();

// ---- between the dialect and the scheduler ------------------------------------------------------

struct LaunchShape {
  dialect::dim3 grid, block;
  size_t shared_bytes = 0;                   // dynamic
  size_t shared_limit = kStaticSharedBytes;  // maximum of dynamic memory and variables together
};

struct KernelCall {
  const void* address;  // the C++ compiler's version of the kernel
  // Mangled name of the type std::integral_constant of that pointer. Null if PTX has no such
  // kernel.
  const char* name;
  LaunchShape shape;
  std::function<void()> body;    // one CUDA thread
  std::vector<char> parameters;  // in the device's layout
};

// Runs the C++ compiler's version of a kernel; `body` is one CUDA thread.
void RunKernel(const LaunchShape& shape, const std::function<void()>& body);

// The operation that a thread waits in, and its source line.
struct Site {
  const char* op;
  const char* file;
  int line;
};

// Runs once per collective in the thread that arrives last; args[i] is the argument of lane i, null
// if the lane does not take part.
using Exchange = void (*)(void* const* args);

void WarpCollective(unsigned mask, const Site& site, bool orders_memory, Exchange fn, void* arg);
// A barrier over all threads of the block that have not exited.
void BlockBarrier(const Site& site);
void MemoryFence();
unsigned LaneId();
int ThreadIndex();          // in the block
bool CopyCompletesEarly();  // whether the next asynchronous copy completes at once

// Ends the process with a line on standard error.
[[noreturn]] void Die(const std::string& what);
// Like Die, for a rule that the running thread broke.
[[noreturn]] void Fail(const std::string& what, const Site* site = nullptr,
                       const Site* other = nullptr);

}  // namespace kuiper::simt
