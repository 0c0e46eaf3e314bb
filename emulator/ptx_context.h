// The state in which PTX instructions execute, and functions they share: reading and writing lanes
// as values of a type. Included only by the ptx_*.cpp files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include "emulator/machine.h"
#include "emulator/ptx_program.h"
#include "emulator/ptx_run.h"

namespace kuiper::simt::ptx {

struct Copy {  // an executed cp.async; `mask`: lanes whose copy is incomplete
  uint32_t mask;
  uint32_t bytes;
  uint32_t to[kLanes];  // offset in shared memory
  const char* from[kLanes];
  uint32_t from_bytes[kLanes];  // the remainder becomes zeros
  uint32_t group[kLanes];
};

struct Group {  // lanes that are at the same instruction
  enum State : uint8_t { kReady, kWaitsForLanes, kAtBarrier };
  uint32_t pc = 0, mask = 0;
  State state = kReady;
  uint32_t barrier = 0;
};

struct Warp {
  std::vector<char> registers;
  std::vector<Group> groups;
  std::vector<Copy> copies;
  uint32_t committed[kLanes] = {};  // number of committed groups of copies
  uint32_t alive = 0, first_thread = 0;
};

struct Range {  // addresses of the buffer that an instruction accessed last
  uint64_t begin = 0, bytes = 0;
};

struct Context {
  char* registers = nullptr;  // registers of the warp
  uint32_t mask = 0;
  Warp* warp = nullptr;
  const Kernel* kernel = nullptr;
  const LaunchShape* shape = nullptr;
  const char* parameters = nullptr;
  std::vector<char>* shared = nullptr;
  std::vector<Range> ranges;  // per instruction
  uint32_t block[3] = {};
  Contents* before = nullptr;
  Traffic* traffic = nullptr;  // per instruction; null: not counted
  std::mt19937_64 rng;         // random numbers of the shuffled schedule

  template <typename T>
  T* At(uint32_t offset) const {
    return reinterpret_cast<T*>(registers + offset);
  }
};

// Ends the process: names file, line and text of the instruction, the kernel, and the thread.
[[noreturn]] void Fail(const Context& c, const Instruction& i, const std::string& what,
                       int lane = -1);
// Returns the memory of one lane's access; fails if it is out of bounds or misaligned.
char* SharedBytes(const Context& c, const Instruction& i, uint64_t address, size_t bytes, int lane);
// Returns the counters of the instruction; valid only if traffic is counted.
inline Traffic* TrafficOf(const Context& c, const Instruction& i) {
  return c.traffic + (&i - c.kernel->code.data());
}
// Completes the copies of these lanes.
void CompleteCopy(const Context& c, Copy& copy, uint32_t lanes);

// ---- lanes --------------------------------------------------------------------------------------

// The type in which a lane stores a T.
template <typename T>
using Lane = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <typename T>
T Read(Lane<T> lane) {
  if constexpr (std::is_floating_point_v<T>) {
    T value;
    std::memcpy(&value, &lane, sizeof value);
    return value;
  } else {
    return static_cast<T>(lane);
  }
}

template <typename T>
Lane<T> Write(T value) {
  if constexpr (std::is_floating_point_v<T>) {
    Lane<T> lane;
    std::memcpy(&lane, &value, sizeof lane);
    return lane;
  } else {
    return static_cast<Lane<T>>(static_cast<std::make_unsigned_t<T>>(value));
  }
}

// d[l] = f(l) for every active lane.
template <typename D, typename F>
void Store(const Context& c, uint32_t to, F f) {
  Lane<D>* const d = c.At<Lane<D>>(to);
  if (c.mask == kAllLanes) {
    for (int l = 0; l < kLanes; ++l) d[l] = Write<D>(f(l));
  } else {
    for (int l = 0; l < kLanes; ++l)
      if ((c.mask >> l & 1) != 0) d[l] = Write<D>(f(l));
  }
}

inline void StorePredicate(const Context& c, uint32_t to, uint32_t bits) {
  uint32_t* const p = c.At<uint32_t>(to);
  *p = (*p & ~c.mask) | (bits & c.mask);
}

// ---- forms of element-wise operations -----------------------------------------------------------

template <typename T>
constexpr char Letter(bool written) {
  const char letter = sizeof(T) == 8 ? 'l' : sizeof(T) == 4 ? 'w' : 'h';
  return static_cast<char>(written ? letter - 'a' + 'A' : letter);
}

// Makes the form d = f(a...) with the types of the function. F is a captureless lambda.
template <typename D, typename A, typename F>
Form Unary(F) {
  const Function run = [](Context& c, const Instruction& i) {
    const Lane<A>* const a = c.At<Lane<A>>(i.s[0]);
    Store<D>(c, i.d[0], [&](int l) { return F{}(Read<A>(a[l])); });
  };
  return {{Letter<D>(true), ',', Letter<A>(false)}, run};
}

template <typename D, typename A, typename B, typename F>
Form Binary(F) {
  const Function run = [](Context& c, const Instruction& i) {
    const Lane<A>* const a = c.At<Lane<A>>(i.s[0]);
    const Lane<B>* const b = c.At<Lane<B>>(i.s[1]);
    Store<D>(c, i.d[0], [&](int l) { return F{}(Read<A>(a[l]), Read<B>(b[l])); });
  };
  return {{Letter<D>(true), ',', Letter<A>(false), ',', Letter<B>(false)}, run};
}

template <typename T, typename F>
Form Ternary(F) {
  const Function run = [](Context& c, const Instruction& i) {
    const Lane<T>* const a = c.At<Lane<T>>(i.s[0]);
    const Lane<T>* const b = c.At<Lane<T>>(i.s[1]);
    const Lane<T>* const e = c.At<Lane<T>>(i.s[2]);
    Store<T>(c, i.d[0], [&](int l) { return F{}(Read<T>(a[l]), Read<T>(b[l]), Read<T>(e[l])); });
  };
  const char letter = Letter<T>(false);
  return {{Letter<T>(true), ',', letter, ',', letter, ',', letter}, run};
}

}  // namespace kuiper::simt::ptx
