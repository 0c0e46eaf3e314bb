#include "emulator/memory.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include "emulator/sanitizer.h"

namespace kuiper::simt {
namespace {

constexpr size_t kRedZone = 4096;
constexpr size_t kAlignment = 256;
constexpr int kUninitialised = 0xff;
constexpr unsigned char kCanary = 0xa5;

struct Block {
  size_t bytes;
  MemoryKind kind;
  void* storage;
  uint64_t id;
};

std::map<const char*, Block>& Blocks() {
  static std::map<const char*, Block> blocks;  // by address of the first usable byte
  return blocks;
}

size_t device_bytes = 0;
uint64_t num_allocations = 0;

const std::pair<const char* const, Block>* Find(const void* p) {
  auto it = Blocks().upper_bound(static_cast<const char*>(p));
  if (it == Blocks().begin()) return nullptr;
  --it;
  return p < it->first + it->second.bytes || p == it->first ? &*it : nullptr;
}

[[noreturn]] void Report(const char* what, const void* p, size_t bytes) {
  std::fprintf(stderr, "simt: %s (buffer %p of %zu bytes)\n", what, p, bytes);
  std::fflush(stderr);
  std::abort();
}

void CheckCanary(const char* zone, const char* buffer, size_t bytes) {
  Unpoison(zone, kRedZone);
  for (size_t i = 0; i < kRedZone; ++i)
    if (static_cast<unsigned char>(zone[i]) != kCanary)
      Report(
          zone < buffer ? "write before the start of a buffer" : "write past the end of a buffer",
          buffer, bytes);
}

}  // namespace

void* AllocateMemory(size_t bytes, MemoryKind kind) {
  void* const storage = std::malloc(bytes + 2 * kRedZone + kAlignment);
  if (storage == nullptr) return nullptr;
  auto address = reinterpret_cast<uintptr_t>(storage) + kRedZone;
  address = (address + kAlignment - 1) / kAlignment * kAlignment;
  auto* const p = reinterpret_cast<char*>(address);
  std::memset(p - kRedZone, kCanary, kRedZone);
  std::memset(p, kUninitialised, bytes);
  std::memset(p + bytes, kCanary, kRedZone);
  Poison(p - kRedZone, kRedZone);
  Poison(p + bytes, kRedZone);
  Blocks()[p] = {bytes, kind, storage, ++num_allocations};
  if (kind == MemoryKind::kDevice) device_bytes += bytes;
  return p;
}

void FreeMemory(void* p) {
  const auto it = Blocks().find(static_cast<const char*>(p));
  if (it == Blocks().end()) Report("free of an address that was not allocated", p, 0);
  const Block block = it->second;
  CheckCanary(it->first - kRedZone, it->first, block.bytes);
  CheckCanary(it->first + block.bytes, it->first, block.bytes);
  if (block.kind == MemoryKind::kDevice) device_bytes -= block.bytes;
  Blocks().erase(it);
  std::free(block.storage);
}

bool IsMemory(const void* p, size_t bytes, MemoryKind kind) {
  const auto* block = Find(p);
  return block != nullptr && block->second.kind == kind &&
         static_cast<const char*>(p) + bytes <= block->first + block->second.bytes;
}

bool IsDeviceAddress(const void* p) {
  const auto* block = Find(p);
  return block != nullptr && block->second.kind == MemoryKind::kDevice;
}

MemoryRange FindBuffer(const void* p) {
  const auto* block = Find(p);
  if (block == nullptr) return {};
  return {const_cast<char*>(block->first), block->second.bytes, block->second.id};
}

MemoryRange FindDeviceBuffer(const void* p) {
  return IsDeviceAddress(p) ? FindBuffer(p) : MemoryRange{};
}

size_t AllocatedDeviceBytes() {
  return device_bytes;
}

}  // namespace kuiper::simt
