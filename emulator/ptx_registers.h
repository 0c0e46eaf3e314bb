// The registers of a kernel by their PTX names: declared and special registers, and immediates.
// Reserves their space in a warp. Used by ptx_parse.cpp.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "emulator/ptx_program.h"

namespace kuiper::simt::ptx {

struct Register {
  uint32_t offset;
  int bytes;  // 1 for a predicate
};

class Registers {
 public:
  explicit Registers(Kernel& kernel) : k_(kernel) {}

  // Parses .reg .b32 %r<9> or .reg .b32 name; returns false if the text is neither.
  bool Declare(const std::string& text);
  // Names without a number belong to the block { } that declares them.
  void OpenScope() { scopes_.push_back({num_scopes_++, {}}); }
  void CloseScope() { scopes_.pop_back(); }

  // Returns null if no register has that name.
  const Register* Find(const std::string& name);
  // Finds a register of 4 bytes; returns false if the name is not special.
  bool FindSpecial(const std::string& name, uint32_t* reg);
  // Returns a register whose lanes hold the value.
  uint32_t Constant(uint64_t value, int bytes);

 private:
  struct Scope {
    int id;
    std::map<std::string, int> registers;  // bytes by name
  };

  uint32_t Allocate(int bytes);

  Kernel& k_;
  std::vector<Scope> scopes_{{0, {}}};
  int num_scopes_ = 1;
  std::map<std::string, int> numbered_;  // %r<9>: bytes by prefix
  std::unordered_map<std::string, Register> registers_;
  std::map<std::pair<int, uint64_t>, uint32_t> constants_;
  std::map<std::string, uint32_t> specials_;
};

}  // namespace kuiper::simt::ptx
