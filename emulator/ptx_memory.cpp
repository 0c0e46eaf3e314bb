#include <algorithm>
#include <string>
#include <utility>

#include "emulator/memory.h"
#include "emulator/ptx_context.h"

// Loads, stores, atomics and asynchronous copies. Every access is checked. It must be within one
// live buffer, the shared memory of the launch or the parameters, and be aligned to its size.

namespace kuiper::simt::ptx {
namespace {

// A range of addresses from `begin` on and the memory it refers to.
struct Window {
  uint64_t begin = 0, bytes = 0;
  char* memory = nullptr;

  bool Has(uint64_t address, size_t size) const {
    return address - begin <= bytes && bytes - (address - begin) >= size;
  }
};

Window SharedWindow(const Context& c) {
  return {0, c.shared->size(), c.shared->data()};
}

// Returns the buffer that the instruction accessed last.
Window LastBuffer(const Context& c, const Instruction& i) {
  const Range& r = c.ranges[static_cast<size_t>(&i - c.kernel->code.data())];
  return {r.begin, r.bytes, reinterpret_cast<char*>(r.begin)};
}

// Finds device memory only: none of our kernels reads pinned host memory.
Window FindBuffer(Context& c, const Instruction& i, uint64_t address, size_t bytes, int lane) {
  const MemoryRange found = FindDeviceBuffer(reinterpret_cast<const void*>(address));
  const Window w{reinterpret_cast<uint64_t>(found.begin), found.bytes, found.begin};
  if (found.begin == nullptr || !w.Has(address, bytes))
    Fail(c, i, "access outside every device buffer, " + std::to_string(bytes) + " bytes", lane);
  c.ranges[static_cast<size_t>(&i - c.kernel->code.data())] = {w.begin, w.bytes};
  if (c.before != nullptr && c.before->count(w.memory) == 0)
    c.before->emplace(w.memory, std::vector<char>(w.memory, w.memory + w.bytes));
  return w;
}

// Returns the memory of an access that is not in the window tried first.
Window OtherWindow(Context& c, const Instruction& i, uint64_t address, size_t bytes, int lane) {
  if (i.space == Space::kShared) SharedBytes(c, i, address, bytes, lane);  // reports the error
  if (i.space == Space::kParam) Fail(c, i, "access outside the parameters", lane);
  if (i.space == Space::kGeneric) {
    const Window shared{reinterpret_cast<uint64_t>(c.shared->data()), c.shared->size(),
                        c.shared->data()};
    if (shared.Has(address, bytes)) return shared;
  }
  return FindBuffer(c, i, address, bytes, lane);
}

// Returns the address that operand s[n] gives a lane. kWide: the operand is a 64-bit register.
template <bool kWide>
uint64_t Address(const Context& c, const Instruction& i, int n, int lane) {
  const auto displacement = static_cast<uint64_t>(i.displacement[n]);
  if constexpr (kWide) return c.At<uint64_t>(i.s[n])[lane] + displacement;
  return c.At<uint32_t>(i.s[n])[lane] + displacement;
}

// Counts a request of the active lanes at the address of operand s[n], in the memory they refer to.
template <bool kWide>
void CountAccess(const Context& c, const Instruction& i, uint32_t bytes) {
  const auto shared = reinterpret_cast<uint64_t>(c.shared->data());
  uint64_t addresses[kLanes];
  uint32_t in_shared = i.space == Space::kShared ? c.mask : 0;
  for (int l = 0; l < kLanes; ++l) {
    addresses[l] = Address<kWide>(c, i, 0, l);
    if (i.space != Space::kGeneric || addresses[l] - shared >= c.shared->size()) continue;
    addresses[l] -= shared;
    in_shared |= c.mask & 1u << l;
  }
  CountShared(addresses, in_shared, bytes, TrafficOf(c, i));
  CountGlobal(addresses, c.mask & ~in_shared, bytes, TrafficOf(c, i));
}

// Calls f(lane, its memory) for the active lanes in ascending order.
template <size_t kBytes, bool kWide, typename F>
void ForEachAccess(Context& c, const Instruction& i, F f) {
  if (c.traffic != nullptr && i.space != Space::kParam) CountAccess<kWide>(c, i, kBytes);
  Window w = i.space == Space::kShared ? SharedWindow(c)
             : i.space == Space::kParam
                 ? Window{0, c.kernel->parameter_bytes, const_cast<char*>(c.parameters)}
                 : LastBuffer(c, i);
  for (int l = 0; l < kLanes; ++l) {
    if ((c.mask >> l & 1) == 0) continue;
    const uint64_t address = Address<kWide>(c, i, 0, l);
    if (address % kBytes != 0) Fail(c, i, "misaligned address", l);
    if (!w.Has(address, kBytes)) w = OtherWindow(c, i, address, kBytes, l);
    f(l, w.memory + (address - w.begin));
  }
}

// T is the type in memory; D and S are the types of a register lane.
template <typename T, typename D, int kCount, bool kWide>
void Load(Context& c, const Instruction& i) {
  D* d[kCount];
  for (int n = 0; n < kCount; ++n) d[n] = c.At<D>(i.d[n]);
  ForEachAccess<sizeof(T) * kCount, kWide>(c, i, [&](int l, const char* p) {
    T values[kCount];
    std::memcpy(values, p, sizeof values);
    for (int n = 0; n < kCount; ++n) d[n][l] = static_cast<D>(values[n]);
  });
}

template <typename T, typename S, int kCount, bool kWide>
void StoreTo(Context& c, const Instruction& i) {
  const S* s[kCount];
  for (int n = 0; n < kCount; ++n) s[n] = c.At<S>(i.s[1 + n]);
  ForEachAccess<sizeof(T) * kCount, kWide>(c, i, [&](int l, char* p) {
    T values[kCount];
    for (int n = 0; n < kCount; ++n) values[n] = static_cast<T>(s[n][l]);
    std::memcpy(p, values, sizeof values);
  });
}

template <typename T, bool kWide, typename F>
Function Atomic(F) {
  return [](Context& c, const Instruction& i) {
    const T* const s = c.At<T>(i.s[1]);
    T* const d = c.At<T>(i.d[0]);
    ForEachAccess<sizeof(T), kWide>(c, i, [&](int l, char* p) {
      T before;
      std::memcpy(&before, p, sizeof before);
      const T after = F{}(before, s[l]);
      std::memcpy(p, &after, sizeof after);
      d[l] = before;
    });
  };
}

// ---- asynchronous copies ----------------------------------------------------------------------

// Counts the copy: it reads only for the lanes that do not get only zeros, and writes for all.
void CountCopy(const Context& c, const Instruction& i, const Copy& copy) {
  uint64_t to[kLanes], from[kLanes];
  uint32_t reading = 0;
  for (int l = 0; l < kLanes; ++l) {
    to[l] = copy.to[l];
    from[l] = reinterpret_cast<uint64_t>(copy.from[l]);
    reading |= static_cast<uint32_t>(copy.from_bytes[l] != 0) << l;
  }
  CountShared(to, copy.mask, copy.bytes, TrafficOf(c, i));
  CountGlobal(from, reading, copy.bytes, TrafficOf(c, i));
}

// cp.async [shared], [global], bytes (, source bytes): the remainder of the destination becomes
// zeros.
template <uint32_t kBytes, bool kHasSourceBytes>
void CopyAsync(Context& c, const Instruction& i) {
  const uint32_t bytes = i.literal;
  if (bytes != kBytes) Fail(c, i, "cp.async copies " + std::to_string(kBytes) + " bytes here");
  Window w = LastBuffer(c, i);
  Copy copy{};
  copy.mask = c.mask;
  copy.bytes = bytes;
  for (int l = 0; l < kLanes; ++l) {
    if ((c.mask >> l & 1) == 0) continue;
    const uint64_t to = Address<false>(c, i, 0, l), from = Address<true>(c, i, 1, l);
    const uint32_t from_bytes = kHasSourceBytes ? c.At<uint32_t>(i.s[2])[l] : bytes;
    if (from_bytes > bytes) Fail(c, i, "source longer than its destination", l);
    if (from % bytes != 0) Fail(c, i, "misaligned address", l);
    std::memset(SharedBytes(c, i, to, bytes, l), 0xff, bytes);  // undefined until completed
    copy.to[l] = static_cast<uint32_t>(to);
    copy.from_bytes[l] = from_bytes;
    if (from_bytes != 0) {
      if (!w.Has(from, from_bytes)) w = FindBuffer(c, i, from, from_bytes, l);
      copy.from[l] = w.memory + (from - w.begin);
    }
    copy.group[l] = c.warp->committed[l];
  }
  if (c.traffic != nullptr) CountCopy(c, i, copy);
  const Schedule schedule = CurrentOptions().schedule;
  if (schedule == Schedule::kReversed || (schedule == Schedule::kShuffled && c.rng() % 2 != 0)) {
    CompleteCopy(c, copy, c.mask);
    // The copy is done; a record stays because it must still be waited for.
    copy = {.mask = c.mask, .bytes = 0, .to = {}, .from = {}, .from_bytes = {}, .group = {}};
    std::copy(c.warp->committed, c.warp->committed + kLanes, copy.group);
  }
  c.warp->copies.push_back(copy);
}

void CommitGroup(Context& c, const Instruction&) {
  for (int l = 0; l < kLanes; ++l) c.warp->committed[l] += c.mask >> l & 1;
}

// Counts the bytes that the lanes have in flight, whether they wait for them or not.
void CountWait(const Context& c, const Instruction& i) {
  uint64_t& most = TrafficOf(c, i)->copies_under_way;
  for (int l = 0; l < kLanes; ++l) {
    uint64_t bytes = 0;
    for (const Copy& copy : c.warp->copies)
      if ((copy.mask & c.mask) >> l & 1) bytes += copy.bytes;
    most = std::max(most, bytes);
  }
}

void WaitGroup(Context& c, const Instruction& i) {
  if (c.traffic != nullptr) CountWait(c, i);
  std::vector<Copy>& copies = c.warp->copies;
  for (Copy& copy : copies) {
    uint32_t done = 0;
    for (int l = 0; l < kLanes; ++l)
      done |= static_cast<uint32_t>(uint64_t{copy.group[l]} + i.literal < c.warp->committed[l])
              << l;
    CompleteCopy(c, copy, done & copy.mask & c.mask);
  }
  std::erase_if(copies, [](const Copy& copy) { return copy.mask == 0; });
}

// ---- opcodes ----------------------------------------------------------------------------------

struct Addressing {
  const char* name;  // follows ld, st or atom
  Space space;
  char letter;  // pattern letter of the address
};
constexpr Addressing kAddressings[] = {
    {".global", Space::kGlobal, 'g'}, {".shared", Space::kShared, 'a'}, {"", Space::kGeneric, 'g'}};

std::string Several(char letter, int count) {
  return std::string(static_cast<size_t>(count), letter);
}

template <typename T, typename D, int kCount>
void AddLoad(FormTable& table, const std::string& type, char written) {
  const std::string vector = kCount == 1 ? "" : ".v" + std::to_string(kCount);
  const std::string suffix = vector + "." + type, to = Several(written, kCount) + ",";
  const auto add = [&](const std::string& name, Space space, char letter) {
    Form form{to + letter, letter == 'g' ? Load<T, D, kCount, true> : Load<T, D, kCount, false>};
    form.space = space;
    table["ld" + name + suffix].push_back(std::move(form));
  };
  for (const Addressing& a : kAddressings) add(a.name, a.space, a.letter);
  for (const char letter : {'a', 'g'}) add(".param", Space::kParam, letter);
  // Hints about caches, and about data that stays constant while the kernel runs.
  for (const char* hint : {".cg", ".nc", ".nc.L1::no_allocate.L2::128B"})
    add(std::string(".global") + hint, Space::kGlobal, 'g');
}

template <typename T, typename S, int kCount>
void AddStore(FormTable& table, const std::string& type, char read) {
  const std::string vector = kCount == 1 ? "" : ".v" + std::to_string(kCount);
  for (const Addressing& a : kAddressings) {
    Form form{a.letter + ("," + Several(read, kCount)),
              a.letter == 'g' ? StoreTo<T, S, kCount, true> : StoreTo<T, S, kCount, false>};
    form.space = a.space;
    table["st" + (a.name + vector) + "." + type].push_back(std::move(form));
  }
}

// Registers may be wider than the type: a load extends the value, a store uses the lower part.
template <typename T>
void AddType(FormTable& table, const std::string& type) {
  const auto add = [&](auto count) {
    constexpr int kCount = decltype(count)::value;
    if constexpr (sizeof(T) == 8) {
      AddLoad<T, uint64_t, kCount>(table, type, 'L');
      AddStore<T, uint64_t, kCount>(table, type, 'l');
    } else {
      if (sizeof(T) < 4) AddLoad<T, uint32_t, kCount>(table, type, 'H');
      AddLoad<T, uint32_t, kCount>(table, type, 'W');
      AddLoad<T, uint64_t, kCount>(table, type, 'L');
      if (sizeof(T) < 4) AddStore<T, uint32_t, kCount>(table, type, 'h');
      AddStore<T, uint32_t, kCount>(table, type, 'w');
      AddStore<T, uint64_t, kCount>(table, type, 'l');
    }
  };
  add(std::integral_constant<int, 1>{});
  add(std::integral_constant<int, 2>{});
  add(std::integral_constant<int, 4>{});
}

template <typename T>
void AddAtomics(FormTable& table, const std::string& type) {
  const char letter = Letter<T>(false), written = Letter<T>(true);
  for (const Addressing& a : kAddressings) {
    const auto add = [&](const char* operation, Function narrow, Function wide) {
      Form form{{written, ',', a.letter, ',', letter}, a.letter == 'g' ? wide : narrow};
      form.space = a.space;
      table["atom" + (a.name + std::string(operation)) + "." + type].push_back(std::move(form));
    };
    const auto sum = [](T x, T y) { return static_cast<T>(x + y); };
    const auto largest = [](T x, T y) { return std::max(x, y); };
    add(".add", Atomic<T, false>(sum), Atomic<T, true>(sum));
    add(".max", Atomic<T, false>(largest), Atomic<T, true>(largest));
  }
}

void Nothing(Context&, const Instruction&) {}

}  // namespace

char* SharedBytes(const Context& c, const Instruction& i, uint64_t address, size_t bytes,
                  int lane) {
  if (address > c.shared->size() || c.shared->size() - address < bytes)
    Fail(c, i, "access outside shared memory, at " + std::to_string(address), lane);
  if (address % bytes != 0) Fail(c, i, "misaligned address", lane);
  return c.shared->data() + address;
}

void CompleteCopy(const Context& c, Copy& copy, uint32_t lanes) {
  for (int l = 0; l < kLanes; ++l) {
    if ((lanes >> l & 1) == 0) continue;
    char* const to = c.shared->data() + copy.to[l];
    std::memset(to, 0, copy.bytes);
    if (copy.from_bytes[l] != 0) std::memcpy(to, copy.from[l], copy.from_bytes[l]);
  }
  copy.mask &= ~lanes;
}

void AddMemory(FormTable& table) {
  AddType<uint8_t>(table, "u8");
  AddType<uint8_t>(table, "b8");
  AddType<int8_t>(table, "s8");
  AddType<uint16_t>(table, "u16");
  AddType<uint16_t>(table, "b16");
  AddType<int16_t>(table, "s16");
  AddType<uint32_t>(table, "u32");
  AddType<uint32_t>(table, "b32");
  AddType<uint32_t>(table, "f32");
  AddType<int32_t>(table, "s32");
  for (const char* type : {"u64", "b64", "s64", "f64"}) AddType<uint64_t>(table, type);
  AddAtomics<uint32_t>(table, "u32");
  AddAtomics<uint64_t>(table, "u64");
  table["cp.async.cg.shared.global"] = {{"a,g,i", CopyAsync<16, false>},
                                        {"a,g,i,w", CopyAsync<16, true>}};
  table["cp.async.ca.shared.global"] = {{"a,g,i", CopyAsync<8, false>}};
  table["cp.async.commit_group"] = {{"", CommitGroup}};
  table["cp.async.wait_group"] = {{"i", WaitGroup}};
  // Blocks run one after another and lanes in lockstep, so memory is always in order.
  table["membar.gl"] = {{"", Nothing}};
  table["membar.cta"] = {{"", Nothing}};
}

}  // namespace kuiper::simt::ptx
