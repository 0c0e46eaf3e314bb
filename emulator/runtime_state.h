// State that the sources of the emulated runtime share: streams as queues of work, the graph into
// which a stream is captured, and the lock that guards them.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <vector>

#include "emulator/memory.h"
#include "emulator/runtime.h"

namespace kuiper::simt {

using Work = std::function<void()>;

// A unit of work for a stream.
struct Node {
  std::function<Work()> queued;   // called when queued, alone or in a graph; returns the work
  std::vector<MemoryRange> uses;  // buffers that must exist then
};

struct Graph {
  std::vector<Node> nodes;
};

struct Stream {
  std::deque<Work> queue;
  bool running = false;
  Graph* capture = nullptr;
  bool capture_broken = false;
};

struct Event {
  Stream* stream = nullptr;  // stream in which it was last recorded
  uint64_t recorded = 0, reached = 0;
  bool has_time = false;
  std::chrono::steady_clock::time_point time;  // when it was reached
  bool sleeps = false;                         // a waiting host thread sleeps instead of polling
};

// Counts the copies from the device to a pinned buffer.
struct CopiesTo {
  int waiting = 0;
  uint64_t done = 0;
};

struct Runtime {
  std::recursive_mutex mutex;
  Stream default_stream;
  std::set<Stream*> streams;
  std::map<const void*, int> max_dynamic_shared;
  std::set<const void*> loaded_kernels;
  std::map<uint64_t, CopiesTo> copies_to;  // by pinned buffer
  HostWaits waits;
};
Runtime& Device();
using Lock = std::lock_guard<std::recursive_mutex>;

// Remembers an error for cudaGetLastError and returns it.
dialect::cudaError_t Result(dialect::cudaError_t error);
// True if the simulated fault has occurred.
bool IsFaulty();

Stream& Get(Stream* stream);
dialect::cudaError_t Queue(Stream* stream, Node node);
dialect::cudaError_t Queue(Stream* stream, Work work);
// Run queued work. The caller holds the lock.
void RunOne(Stream& stream);
void Drain(Stream& stream);
void DrainAll();

// Calls that wait or allocate are not allowed during these captures and make them fail. Returns
// whether there were any. BreaksAnyCapture is for calls that a thread in relaxed mode may make.
bool BreaksCapture(Stream& stream);
bool BreaksAnyCapture();

}  // namespace kuiper::simt
