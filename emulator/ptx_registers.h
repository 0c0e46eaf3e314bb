// The registers of a kernel by the names that PTX gives them: what is declared, immediates, and the
// special ones. Reserves their place in a warp. Used by ptx_parse.cpp.
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

  // .reg .b32 %r<9> or .reg .b32 name; false if the text is neither.
  bool Declare(const std::string& text);
  // Names without a number belong to the block { } that declares them.
  void OpenScope() { scopes_.push_back({num_scopes_++, {}}); }
  void CloseScope() { scopes_.pop_back(); }

  // Null if there is no register of that name.
  const Register* Find(const std::string& name);
  // A register of 4 bytes; false if the name is not special.
  bool FindSpecial(const std::string& name, uint32_t* reg);
  // One whose lanes hold the value.
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
