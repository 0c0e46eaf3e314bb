#include "emulator/machine.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "emulator/fiber.h"
#include "emulator/ready_ring.h"
#include "emulator/sanitizer.h"
#include "emulator/shared_memory.h"

namespace kuiper::simt {

namespace dialect {
uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;
}  // namespace dialect

namespace {

using dialect::blockDim;
using dialect::blockIdx;
using dialect::gridDim;
using dialect::threadIdx;
using dialect::uint3;

constexpr size_t kStackBytes = size_t{kAsan || kTsan ? 256 : 64} * 1024;
constexpr int kWarpSize = 32;
constexpr int kMaxWarps = kMaxThreads / kWarpSize;

struct Thread {
  Fiber fiber;
  uint3 idx{};
  int index = 0;
  bool done = false;
  const Site* waiting = nullptr;  // null while runnable
  unsigned mask = 0;              // mask of the warp operation it waits in
  bool at_barrier = false;
};

// Lanes that wait together. The masks pending in a warp never overlap, so the lowest lane of a mask
// identifies the meeting.
struct Meeting {
  unsigned mask = 0, arrived = 0;
  const Site* site = nullptr;
  Exchange fn = nullptr;
  unsigned phase = 0;
};

struct Warp {
  unsigned exited = 0;
  int waiting = 0;  // lanes in any meeting
  Meeting meetings[kWarpSize];
  void* args[kWarpSize] = {};
};

// Barrier over all threads of the block that have not exited.
struct Barrier {
  const Site* site = nullptr;
  int arrived = 0;
  unsigned phase = 0;
};

// Addresses that represent barriers for TSan. Each barrier alternates between two, because threads
// that leave early may already arrive at the next barrier. Every block has new ones: barriers do
// not order one block after another.
struct Tokens {
  char block[2];
  char warp[kMaxWarps][kWarpSize][2];
};

struct Machine {
  std::mt19937_64 rng;
  const std::function<void()>* body = nullptr;

  Fiber* host = nullptr;  // the OS thread that launched the kernel
  // TSan builds alternate between two sets, so that neighbouring blocks are concurrent.
  std::vector<std::unique_ptr<Thread>> pools[2];
  int bank = 0;
  Thread* current = nullptr;
  int num_threads = 0, alive = 0;

  ReadyRing ready;

  Warp warps[kMaxWarps];
  Barrier barrier;
  std::vector<std::unique_ptr<Tokens>> tokens;
  char launch_token = 0, end_token = 0, fence_token = 0;

  Thread& At(int i) { return *pools[bank][static_cast<size_t>(i)]; }
};

// One device; its built-in variables are global, too. The runtime serialises launches.
Machine machine;

bool Reversed() {
  return CurrentOptions().schedule == Schedule::kReversed;
}

std::string Describe(const Site& s) {
  return std::string(s.op) + " at " + s.file + ":" + std::to_string(s.line);
}

std::string Describe(uint3 v) {
  return std::string("(") + std::to_string(v.x) + "," + std::to_string(v.y) + "," +
         std::to_string(v.z) + ")";
}

Thread* PopReady() {
  Machine& m = machine;
  if (m.ready.empty()) return nullptr;
  const bool shuffled = CurrentOptions().schedule == Schedule::kShuffled;
  return &m.At(shuffled ? m.ready.PopRandom(m.rng()) : m.ready.PopFront());
}

// Puts the thread before those not yet resumed. So one warp runs as far as possible, which keeps
// its 32 stacks in the cache.
void Wake(Thread& t) {
  Machine& m = machine;
  t.waiting = nullptr;
  t.at_barrier = false;
  if (&t == m.current) return;
  m.ready.PushFront(t.index);
}

// Switches from the running thread to the next runnable one, or to the host if there is none.
void Reschedule(Fiber& from) {
  Machine& m = machine;
  Thread* const next = PopReady();
  m.current = next;
  if (next == nullptr) {
    Fiber::Switch(from, *m.host);
    return;
  }
  threadIdx = next->idx;
  if (&next->fiber != &from) Fiber::Switch(from, next->fiber);
}

// Completes a warp operation if every lane it names has arrived or exited.
bool TryFinish(int warp_index, Meeting& meeting) {
  Machine& m = machine;
  Warp& w = m.warps[warp_index];
  const unsigned arrived = meeting.arrived;
  if (arrived == 0 || (meeting.mask & ~(arrived | w.exited)) != 0) return false;
  void* args[kWarpSize];
  for (int i = 0; i < kWarpSize; ++i) args[i] = (arrived >> i) & 1 ? w.args[i] : nullptr;
  meeting.arrived = 0;
  w.waiting -= std::popcount(arrived);
  ++meeting.phase;
  if (meeting.fn != nullptr) {
    const IgnoreAccesses ignore;
    meeting.fn(args);
  }
  const bool reversed = Reversed();
  for (int k = 0; k < kWarpSize; ++k) {
    const int lane = reversed ? k : kWarpSize - 1 - k;
    if ((arrived >> lane) & 1) Wake(m.At(warp_index * kWarpSize + lane));
  }
  return true;
}

bool TryFinishBarrier() {
  Machine& m = machine;
  Barrier& b = m.barrier;
  if (b.arrived == 0 || b.arrived < m.alive) return false;
  b.arrived = 0;
  ++b.phase;
  const bool reversed = Reversed();
  for (int k = 0; k < m.num_threads; ++k) {
    Thread& t = m.At(reversed ? k : m.num_threads - 1 - k);
    if (t.at_barrier) Wake(t);
  }
  return true;
}

void ThreadEntry() {
  Machine& m = machine;
  for (;;) {
    Thread& t = *m.current;
    Acquire(&m.launch_token);
    (*m.body)();
    FinishCopies(t.index);
    Release(&m.end_token);
    t.done = true;
    --m.alive;
    Warp& w = m.warps[t.index / kWarpSize];
    w.exited |= 1u << (t.index % kWarpSize);
    if (w.waiting != 0)
      for (Meeting& meeting : w.meetings) TryFinish(t.index / kWarpSize, meeting);
    TryFinishBarrier();
    Reschedule(t.fiber);
  }
}

void PrepareBlock() {
  Machine& m = machine;
  if (kTsan) m.bank ^= 1;
  if (kTsan || m.tokens.empty()) m.tokens.push_back(std::make_unique<Tokens>());
  auto& pool = m.pools[m.bank];
  while (static_cast<int>(pool.size()) < m.num_threads) {
    pool.push_back(std::make_unique<Thread>());
    pool.back()->index = static_cast<int>(pool.size()) - 1;
    pool.back()->fiber.Prepare(ThreadEntry, kStackBytes);
  }
  m.alive = m.num_threads;
  m.ready.Reset(static_cast<size_t>(m.num_threads));
  for (int w = 0; w * kWarpSize < m.num_threads; ++w) {
    const int lanes = std::min(kWarpSize, m.num_threads - w * kWarpSize);
    // Lanes that do not exist count as exited.
    m.warps[w].exited = lanes < kWarpSize ? ~((1u << lanes) - 1) : 0u;
  }
  for (int i = 0; i < m.num_threads; ++i) {
    Thread& t = m.At(i);
    t.done = false;
    const unsigned u = static_cast<unsigned>(i);
    t.idx = {u % blockDim.x, u / blockDim.x % blockDim.y, u / (blockDim.x * blockDim.y)};
    m.ready.PushBack(Reversed() ? m.num_threads - 1 - i : i);
  }
}

[[noreturn]] void ReportDeadlock() {
  std::vector<std::pair<std::string, int>> groups;  // waiting place -> number of threads
  for (int i = 0; i < machine.num_threads; ++i) {
    const Thread& t = machine.At(i);
    std::string place = t.done ? "exited" : Describe(*t.waiting);
    if (!t.done && t.mask != 0) {
      char mask[32];
      std::snprintf(mask, sizeof mask, " mask 0x%08x", t.mask);
      place += mask;
    }
    auto it = std::find_if(groups.begin(), groups.end(),
                           [&](const auto& group) { return group.first == place; });
    if (it == groups.end()) it = groups.insert(it, {place, 0});
    ++it->second;
  }
  std::string what = "deadlock in block " + Describe(blockIdx) + ":";
  for (const auto& [place, n] : groups)
    what += std::string(" ") + std::to_string(n) + " x " + place + ";";
  Die(what);
}

}  // namespace

void Die(const std::string& what) {
  std::fflush(stdout);
  std::fprintf(stderr, "simt: %s\n", what.c_str());
  std::fflush(stderr);
  std::abort();
}

unsigned LaneId() {
  return static_cast<unsigned>(machine.current->index) % kWarpSize;
}

int ThreadIndex() {
  return machine.current->index;
}

bool CopyCompletesEarly() {
  const Schedule schedule = CurrentOptions().schedule;
  return schedule == Schedule::kReversed || (schedule == Schedule::kShuffled && machine.rng() % 2);
}

void Fail(const std::string& what, const Site* site, const Site* other) {
  std::string text = what;
  if (site != nullptr) text += ": " + Describe(*site);
  if (other != nullptr) text += " and " + Describe(*other);
  Die(text + " [thread " + Describe(threadIdx) + " of block " + Describe(blockIdx) + "]");
}

void WarpCollective(unsigned mask, const Site& site, bool orders_memory, Exchange fn, void* arg) {
  Machine& m = machine;
  Thread& t = *m.current;
  const int warp_index = t.index / kWarpSize, lane = t.index % kWarpSize;
  Warp& w = m.warps[warp_index];
  if (!((mask >> lane) & 1)) Fail("the mask does not name the calling lane", &site);
  const int name = std::countr_zero(mask);
  Meeting& meeting = w.meetings[name];
  if (meeting.arrived == 0) {
    meeting.mask = mask;
    meeting.site = &site;
    meeting.fn = fn;
  } else if (meeting.mask != mask || meeting.fn != fn || meeting.site->line != site.line) {
    Fail("lanes of one warp meet in different operations", &site, meeting.site);
  }
  char* const token = &m.tokens.back()->warp[warp_index][name][meeting.phase % 2];
  if (orders_memory) Release(token);
  w.args[lane] = arg;
  meeting.arrived |= 1u << lane;
  ++w.waiting;
  t.waiting = &site;
  t.mask = mask;
  if (!TryFinish(warp_index, meeting)) Reschedule(t.fiber);
  t.mask = 0;
  if (orders_memory) Acquire(token);
}

void BlockBarrier(const Site& site) {
  Machine& m = machine;
  Thread& t = *m.current;
  Barrier& b = m.barrier;
  if (b.arrived == 0) {
    b.site = &site;
  } else if (b.site->line != site.line) {
    Fail("threads of one block meet at different barriers", &site, b.site);
  }
  char* const token = &m.tokens.back()->block[b.phase % 2];
  Release(token);
  ++b.arrived;
  t.waiting = &site;
  t.at_barrier = true;
  if (!TryFinishBarrier()) Reschedule(t.fiber);
  Acquire(token);
}

void MemoryFence() {
  Acquire(&machine.fence_token);
  Release(&machine.fence_token);
}

void RunKernel(const LaunchShape& shape, const std::function<void()>& body) {
  Machine& m = machine;
  Fiber host;
  m.host = &host;
  m.body = &body;
  m.num_threads = static_cast<int>(shape.block.x * shape.block.y * shape.block.z);
  m.rng.seed(CurrentOptions().seed);
  gridDim = shape.grid;
  blockDim = shape.block;
  std::vector<unsigned> order(size_t{1} * shape.grid.x * shape.grid.y * shape.grid.z);
  for (unsigned i = 0; i < order.size(); ++i) order[i] = i;
  if (Reversed()) std::reverse(order.begin(), order.end());
  if (CurrentOptions().schedule == Schedule::kShuffled)
    std::shuffle(order.begin(), order.end(), m.rng);
  for (const unsigned b : order) {
    blockIdx = {b % gridDim.x, b / gridDim.x % gridDim.y, b / (gridDim.x * gridDim.y)};
    BeginBlockMemory(shape.shared_bytes, shape.shared_limit);
    PrepareBlock();
    Release(&m.launch_token);
    Reschedule(host);  // returns when no thread is runnable
    if (m.alive != 0) ReportDeadlock();
  }
  Acquire(&m.end_token);
  EndKernelMemory();
  if (kTsan) m.tokens.clear();
}

}  // namespace kuiper::simt
