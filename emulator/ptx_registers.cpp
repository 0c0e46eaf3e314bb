#include "emulator/ptx_registers.h"

#include "emulator/ptx_text.h"

namespace kuiper::simt::ptx {

bool Registers::Declare(const std::string& text) {
  const std::vector<std::string> words = Words(text);
  size_t bytes = 0, count = 0;
  if (words.size() < 3 || words[0] != ".reg" || !ReadType(words[1], &bytes)) return false;
  if (words.size() == 3) {
    scopes_.back().registers[words[2]] = static_cast<int>(bytes);
    return true;
  }
  if (words.size() != 6 || words[3] != "<" || !ReadNumber(words[4], &count) || words[5] != ">")
    return false;
  numbered_[words[2]] = static_cast<int>(bytes);
  return true;
}

uint32_t Registers::Allocate(int bytes) {
  const auto at = static_cast<uint32_t>(k_.register_bytes);
  k_.register_bytes += static_cast<size_t>(bytes == 1 ? 64 : bytes == 8 ? 256 : 128);
  return at;
}

uint32_t Registers::Constant(uint64_t value, int bytes) {
  const int lane_bytes = bytes == 8 ? 8 : 4;
  if (bytes == 1) value = value != 0 ? kAllLanes : 0;
  if (bytes == 2) value &= 0xffff;
  if (bytes == 4) value &= 0xffffffff;
  const auto [it, is_new] = constants_.try_emplace({lane_bytes, value}, 0);
  if (is_new) {
    it->second = Allocate(lane_bytes);
    k_.constants.push_back({it->second, lane_bytes, value});
  }
  return it->second;
}

const Register* Registers::Find(const std::string& name) {
  std::string key = name;
  int bytes = 0;
  for (size_t n = scopes_.size(); n-- > 0 && bytes == 0;) {
    const auto it = scopes_[n].registers.find(name);
    if (it == scopes_[n].registers.end()) continue;
    bytes = it->second;
    key += '#';
    key += std::to_string(scopes_[n].id);
  }
  if (const auto it = registers_.find(key); it != registers_.end()) return &it->second;
  if (bytes == 0) {
    const size_t prefix = name.find_last_not_of("0123456789") + 1;
    const auto it = numbered_.find(name.substr(0, prefix));
    if (it == numbered_.end() || prefix == name.size()) return nullptr;
    bytes = it->second;
  }
  return &(registers_[key] = {Allocate(bytes), bytes});
}

bool Registers::FindSpecial(const std::string& name, uint32_t* reg) {
  static const std::map<std::string, Special::Name> kVectors = {{"%tid", Special::kTid},
                                                                {"%ntid", Special::kNtid},
                                                                {"%ctaid", Special::kCtaid},
                                                                {"%nctaid", Special::kNctaid}};
  Special special{};
  const size_t dot = name.find('.');
  if (dot == std::string::npos) {
    if (name != "%laneid" && name != "%warpid") return false;
    special.name = name == "%laneid" ? Special::kLaneid : Special::kWarpid;
  } else {
    const auto it = kVectors.find(name.substr(0, dot));
    const std::string axis = name.substr(dot + 1);
    if (it == kVectors.end() || axis.size() != 1 || axis[0] < 'x' || axis[0] > 'z') return false;
    special.name = it->second;
    special.axis = static_cast<uint8_t>(axis[0] - 'x');
  }
  const auto [it, is_new] = specials_.try_emplace(name, 0);
  if (is_new) {
    it->second = special.reg = Allocate(4);
    k_.specials.push_back(special);
  }
  *reg = it->second;
  return true;
}

}  // namespace kuiper::simt::ptx
