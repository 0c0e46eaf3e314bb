#include "emulator/shared_memory.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "emulator/sanitizer.h"

namespace kuiper::simt {
namespace {

constexpr size_t kAlignment = 1024;
constexpr size_t kGap = 64;  // between variables, to detect accesses past the end of one
constexpr size_t kSlack = size_t{16} * 1024;  // room for the gaps
constexpr int kUninitialised = 0xff;

struct Variable {
  const void* key;
  size_t offset, bytes;
};

struct Copy {
  void* dst;
  const void* src;
  int dst_bytes, src_bytes;
  bool commit;  // this entry is not a copy but ends a group
};

struct Arena {
  std::unique_ptr<char[]> storage;
  char* base = nullptr;
};

struct SharedMemory {
  std::vector<Arena> arenas;  // one arena; in TSan builds one per block of the kernel
  char* base = nullptr;
  size_t used = 0;  // dynamic memory, then variables with gaps
  size_t dynamic_bytes = 0;
  size_t limit = 0;  // maximum bytes of dynamic memory and variables together
  size_t variable_bytes = 0;
  std::vector<Variable> variables;
  std::vector<Copy> copies[kMaxThreads];  // cp.async copies that have not been waited for
};

SharedMemory shared;

// TSan builds keep many arenas at a time.
size_t ArenaBytes() {
  return (kTsan ? MaxSharedBytes() : kMostSharedBytes) + kSlack;
}

void NewArena() {
  Arena a;
  a.storage.reset(new char[ArenaBytes() + kAlignment]);
  const auto address = reinterpret_cast<uintptr_t>(a.storage.get());
  a.base = a.storage.get() + (kAlignment - address % kAlignment) % kAlignment;
  Poison(a.base, ArenaBytes());
  shared.base = a.base;
  shared.arenas.push_back(std::move(a));
}

void Open(size_t offset, size_t bytes) {
  Unpoison(shared.base + offset, bytes);
  std::memset(shared.base + offset, kUninitialised, bytes);
}

void CompleteCopy(const Copy& c) {
  NoteRead(c.src, static_cast<size_t>(c.src_bytes));
  NoteWrite(c.dst, static_cast<size_t>(c.dst_bytes));
  const IgnoreAccesses ignore;  // TSan intercepts memcpy even here
  std::memcpy(c.dst, c.src, static_cast<size_t>(c.src_bytes));
  std::memset(static_cast<char*>(c.dst) + c.src_bytes, 0,
              static_cast<size_t>(c.dst_bytes - c.src_bytes));
}

}  // namespace

void BeginBlockMemory(size_t dynamic_bytes, size_t limit) {
  // TSan builds give every block its own memory; otherwise TSan would assume that blocks share it.
  if (kTsan || shared.arenas.empty()) NewArena();
  Poison(shared.base, shared.used);
  shared.variables.clear();
  shared.variable_bytes = 0;
  shared.dynamic_bytes = dynamic_bytes;
  shared.limit = limit;
  shared.used = dynamic_bytes;
  Open(0, dynamic_bytes);
}

void EndKernelMemory() {
  if (kTsan) shared.arenas.clear();
}

void* DynamicShared() {
  return shared.base;
}

void* SharedVariable(const void* key, size_t bytes, size_t align) {
  for (const Variable& v : shared.variables)
    if (v.key == key) return shared.base + v.offset;
  align = std::max<size_t>(align, 16);
  const size_t offset = (shared.used + kGap + align - 1) / align * align;
  shared.variable_bytes += bytes;
  if (shared.variable_bytes > kStaticSharedBytes ||
      shared.variable_bytes + shared.dynamic_bytes > shared.limit || offset + bytes > ArenaBytes())
    Fail("out of shared memory: " + std::to_string(shared.variable_bytes) +
         " bytes of variables, " + std::to_string(shared.dynamic_bytes) + " dynamic");
  shared.used = offset + bytes;
  shared.variables.push_back({key, offset, bytes});
  const IgnoreAccesses ignore;
  Open(offset, bytes);
  return shared.base + offset;
}

void CheckSharedAddress(const void* p, size_t bytes, const Site& site) {
  const auto* c = static_cast<const char*>(p);
  if (c < shared.base || c + bytes > shared.base + shared.used)
    Fail("not an address in shared memory", &site);
  if (reinterpret_cast<uintptr_t>(p) % bytes != 0) Fail("misaligned shared memory address", &site);
}

void StartCopy(void* dst, const void* src, int dst_bytes, int src_bytes, const Site& site) {
  const auto n = static_cast<size_t>(dst_bytes);
  CheckSharedAddress(dst, n, site);
  if (reinterpret_cast<uintptr_t>(src) % n != 0) Fail("misaligned source address", &site);
  if (src_bytes < 0 || src_bytes > dst_bytes) Fail("source longer than its destination", &site);
  // Both ranges are in use from now on, so the sanitizers check these accesses at this line, too.
  CheckReadable(src, static_cast<size_t>(src_bytes));
  CheckReadable(dst, n);
  NoteRead(src, static_cast<size_t>(src_bytes));
  NoteWrite(dst, n);
  const IgnoreAccesses ignore;
  std::memset(dst, kUninitialised, n);
  const Copy copy{dst, src, dst_bytes, src_bytes, false};
  if (CopyCompletesEarly()) {
    CompleteCopy(copy);
  } else {
    shared.copies[ThreadIndex()].push_back(copy);
  }
}

void CommitCopies() {
  const IgnoreAccesses ignore;
  shared.copies[ThreadIndex()].push_back({nullptr, nullptr, 0, 0, true});
}

void WaitCopies(int groups_left) {
  std::vector<Copy>& queue = shared.copies[ThreadIndex()];
  int groups = 0;
  for (const Copy& c : queue) groups += c.commit;
  size_t landed = 0;
  while (landed < queue.size() && groups > groups_left) {
    const Copy& c = queue[landed++];
    if (c.commit) {
      --groups;
    } else {
      CompleteCopy(c);
    }
  }
  const IgnoreAccesses ignore;
  queue.erase(queue.begin(), queue.begin() + static_cast<ptrdiff_t>(landed));
}

void FinishCopies(int thread) {
  for (const Copy& c : shared.copies[thread])
    if (!c.commit) CompleteCopy(c);
  shared.copies[thread].clear();
}

}  // namespace kuiper::simt
