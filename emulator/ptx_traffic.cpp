#include "emulator/ptx_traffic.h"

#include <algorithm>
#include <bit>
#include <string_view>
#include <unordered_map>

#include "emulator/ptx_run.h"

namespace kuiper::simt::ptx {
namespace {

constexpr uint64_t kSectorBytes = 32;
constexpr uint32_t kBanks = 32, kWordBytes = 4;

// Returns the maximum number of words of one bank that the lanes of `mask` access.
uint64_t WavefrontsOf(const uint64_t (&addresses)[kLanes], uint32_t mask, uint32_t bytes) {
  uint64_t words[kBanks][kLanes];
  uint8_t count[kBanks] = {}, most = 0;
  for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
    const uint64_t address = addresses[std::countr_zero(lanes)];
    for (uint64_t word = address / kWordBytes; word * kWordBytes < address + bytes; ++word) {
      const uint64_t bank = word % kBanks;
      uint64_t* const end = words[bank] + count[bank];
      if (std::find(words[bank], end, word) != end) continue;
      *end = word;
      most = std::max(most, ++count[bank]);
    }
  }
  return most;
}

const std::unordered_map<std::string_view, Work>& WorksByOpcode() {
  static const std::unordered_map<std::string_view, Work> works = [] {
    std::unordered_map<std::string_view, Work> w;
    for (const char* name :
         {"add",   "sub",      "mul", "mad",  "fma",  "div", "rem", "min", "max",  "neg",
          "abs",   "copysign", "and", "or",   "xor",  "not", "shl", "shr", "setp", "bfi",
          "bfind", "brev",     "clz", "popc", "prmt", "ex2", "rcp", "sqrt"})
      w[name] = Work::kInteger;  // or kFloat, depending on the type
    for (const char* name : {"mov", "selp", "cvta"}) w[name] = Work::kMove;
    for (const char* name : {"shfl", "vote"}) w[name] = Work::kShuffle;
    for (const char* name : {"bar", "membar"}) w[name] = Work::kBarrier;
    for (const char* name : {"bra", "ret", "exit"}) w[name] = Work::kBranch;
    w["cvt"] = Work::kConvert;
    w["mma"] = Work::kTensor;
    w["ld"] = Work::kGenericLoad;
    w["st"] = Work::kGenericStore;
    w["ldmatrix"] = Work::kMatrixLoad;
    w["cp"] = Work::kAsyncCopy;
    w["atom"] = Work::kAtomic;
    return w;
  }();
  return works;
}

// Returns the parts of an opcode: ld, global, v4, u32.
std::vector<std::string_view> PartsOf(std::string_view text) {
  if (text.front() == '@') text.remove_prefix(text.find_first_of(" \t\n"));
  text.remove_prefix(text.find_first_not_of(" \t\n"));
  text = text.substr(0, text.find_first_of(" \t\n"));
  std::vector<std::string_view> parts;
  for (size_t dot = 0; dot != std::string_view::npos;) {
    dot = text.find('.');
    parts.push_back(text.substr(0, dot));
    if (dot != std::string_view::npos) text.remove_prefix(dot + 1);
  }
  return parts;
}

// Returns the source line with the most conflicts; "-" if there are none.
std::string WorstLine(const Kernel& kernel, const Usage& usage) {
  const auto worst = std::max_element(
      usage.traffic.begin(), usage.traffic.end(),
      [](const Traffic& a, const Traffic& b) { return a.conflicts() < b.conflicts(); });
  if (worst == usage.traffic.end() || worst->conflicts() == 0) return "-";
  const Instruction& i = kernel.code[static_cast<size_t>(worst - usage.traffic.begin())];
  return kernel.file + ":" + std::to_string(i.line);
}

}  // namespace

void Traffic::Add(const Traffic& other) {
  global_requests += other.global_requests;
  global_bytes += other.global_bytes;
  sectors += other.sectors;
  shared_requests += other.shared_requests;
  shared_bytes += other.shared_bytes;
  wavefronts += other.wavefronts;
  ideal_wavefronts += other.ideal_wavefronts;
  copies_under_way = std::max(copies_under_way, other.copies_under_way);
}

void CountGlobal(const uint64_t (&addresses)[kLanes], uint32_t mask, uint32_t bytes, Traffic* t) {
  if (mask == 0) return;
  // Accesses are aligned to their size, so each is within one sector.
  uint64_t sectors[kLanes];
  uint64_t* end = sectors;
  for (uint32_t lanes = mask; lanes != 0; lanes &= lanes - 1) {
    const uint64_t sector = addresses[std::countr_zero(lanes)] / kSectorBytes;
    if (end != sectors && end[-1] == sector) continue;
    if (std::find(sectors, end, sector) == end) *end++ = sector;
  }
  ++t->global_requests;
  t->global_bytes += uint64_t{bytes} * static_cast<uint64_t>(std::popcount(mask));
  t->sectors += static_cast<uint64_t>(end - sectors);
}

void CountShared(const uint64_t (&addresses)[kLanes], uint32_t mask, uint32_t bytes, Traffic* t) {
  if (mask == 0) return;
  const int parts = bytes <= kWordBytes ? 1 : static_cast<int>(bytes / kWordBytes);
  const int lanes = kLanes / parts;
  for (int part = 0; part < parts; ++part) {
    const uint32_t of_part = mask & (kAllLanes >> (kLanes - lanes) << (part * lanes));
    if (of_part == 0) continue;
    t->wavefronts += WavefrontsOf(addresses, of_part, bytes);
    ++t->ideal_wavefronts;
  }
  ++t->shared_requests;
  t->shared_bytes += uint64_t{bytes} * static_cast<uint64_t>(std::popcount(mask));
}

Work WorkOf(const std::string& text) {
  const std::vector<std::string_view> parts = PartsOf(text);
  const auto it = WorksByOpcode().find(parts[0]);
  if (it == WorksByOpcode().end()) Die("an instruction of no kind: " + text);
  const auto has = [&](std::string_view part) {
    return std::find(parts.begin(), parts.end(), part) != parts.end();
  };
  switch (it->second) {
    case Work::kInteger:
      return parts.back()[0] == 'f' ? Work::kFloat : Work::kInteger;
    case Work::kGenericLoad:
      return has("param")    ? Work::kParameterLoad
             : has("global") ? Work::kGlobalLoad
             : has("shared") ? Work::kSharedLoad
                             : Work::kGenericLoad;
    case Work::kGenericStore:
      return has("global")   ? Work::kGlobalStore
             : has("shared") ? Work::kSharedStore
                             : Work::kGenericStore;
    case Work::kAsyncCopy:
      return has("commit_group") || has("wait_group") ? Work::kBarrier : Work::kAsyncCopy;
    default:
      return it->second;
  }
}

std::array<uint64_t, kNumWorks> CountWork(const Kernel& kernel, const Usage& usage) {
  std::array<uint64_t, kNumWorks> counts{};
  for (size_t pc = 0; pc < usage.executed.size(); ++pc)
    if (usage.executed[pc] != 0)
      counts[static_cast<size_t>(
          kernel.code[pc].kind == Kind::kReturn ? Work::kBranch : WorkOf(kernel.text[pc]))] +=
          usage.executed[pc];
  return counts;
}

std::string ReportHeader() {
  std::string header =
      "kernel\tlaunches\tblocks\twarp_instructions\texecuted\tinstructions\tdynamic_shared\tglobal_"
      "requests\t"
      "global_bytes\tsectors\tshared_requests\tshared_bytes\twavefronts\tideal_wavefronts\t"
      "copies_under_way\tworst_line";
  for (const char* name : kWorkNames) header.append(1, '\t').append(name);
  return header;
}

std::string ReportLine(const std::string& name, const Kernel& kernel, const Usage& usage) {
  const auto unused = std::count(usage.executed.begin(), usage.executed.end(), 0u);
  Traffic sum;
  for (const Traffic& t : usage.traffic) sum.Add(t);
  std::string line = name;
  for (const uint64_t n :
       {usage.launches, usage.blocks, usage.warp_instructions,
        uint64_t{usage.executed.size()} - static_cast<uint64_t>(unused),
        uint64_t{usage.executed.size()}, uint64_t{usage.dynamic_shared}, sum.global_requests,
        sum.global_bytes, sum.sectors, sum.shared_requests, sum.shared_bytes, sum.wavefronts,
        sum.ideal_wavefronts, sum.copies_under_way})
    line.append(1, '\t').append(std::to_string(n));
  line.append(1, '\t').append(WorstLine(kernel, usage));
  for (const uint64_t n : CountWork(kernel, usage)) line.append(1, '\t').append(std::to_string(n));
  return line;
}

}  // namespace kuiper::simt::ptx
