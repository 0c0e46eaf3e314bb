// Kernels as nvcc wrote them in PTX, decoded for execution: what ptx_parse.cpp makes of the text
// and ptx_run.cpp runs. A warp is executed in lockstep: a register holds 32 lanes side by side
// (16-bit registers in lanes of 32 bits), a predicate one bit per lane, and operands are byte
// offsets into the registers of a warp. Immediates are registers that nobody writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace kuiper::simt::ptx {

struct Context;
struct Instruction;
// Executes an instruction for the lanes of Context::mask.
using Function = void (*)(Context&, const Instruction&);

inline constexpr int kLanes = 32;
inline constexpr uint32_t kAllLanes = 0xffffffffu;

enum class Kind : uint8_t {
  kPlain,
  kBranch,
  kReturn,
  kBarrier,  // bar.sync
  kWarp,     // waits for the lanes that mask_operand names
};
enum class Space : uint8_t { kGlobal, kShared, kParam, kGeneric };

struct Instruction {
  static constexpr int8_t kWholeWarp = -1;

  Function run = nullptr;
  uint32_t d[4] = {}, s[10] = {};  // registers
  int64_t displacement[2] = {};    // of the addresses, in the order of the text
  uint32_t literal = 0;            // a number that must be one, like that of cp.async.wait_group
  uint32_t guard = 0, target = 0;  // the predicate in front; where a branch goes
  Kind kind = Kind::kPlain;
  Space space = Space::kGeneric;
  bool guarded = false, negated = false;
  int8_t mask_operand = kWholeWarp;  // the index in s
  int line = 0;                      // of the file
};

struct Special {  // a register the device writes: %tid.x
  enum Name : uint8_t { kTid, kNtid, kCtaid, kNctaid, kLaneid, kWarpid };
  Name name;
  uint8_t axis;
  uint32_t reg;
};
struct Constant {
  uint32_t reg;
  int bytes;  // of a lane: 4 or 8
  uint64_t value;
};

struct Kernel {
  std::string name, file;  // as C++ spells it; without its folder
  std::vector<Instruction> code;
  std::vector<std::string> text;  // of each instruction
  std::vector<Constant> constants;
  std::vector<Special> specials;
  size_t parameter_bytes = 0, register_bytes = 0;
  size_t shared_bytes = 0;      // of its variables; dynamic memory begins behind them
  uint32_t max_threads = 1024;  // what .maxntid allows
};

// A name of the linker as C++ spells it; others as they are.
std::string Demangled(const std::string& name);

// The kernels of a module. Ends the process with file, line and text of anything it does not know.
std::vector<std::unique_ptr<Kernel>> ParseModule(const std::string& text, const std::string& file);
// The offsets of variables in shared memory and of parameters in their block.
using Symbols = std::unordered_map<std::string, size_t>;
// Decodes the text between the outermost braces of a kernel, which begins at this line of the file.
void ReadBody(Kernel& kernel, const Symbols& symbols, std::string_view body, int line);

// What an opcode does and with which operands: one form for each shape. `pattern` describes the
// operands as in the text, separated by commas; several letters are a vector:
//   P H W L  a register that is written: a predicate, or 16, 32, 64 bits wide
//   p h w l  a register or an immediate that is read
//   a g      the address of shared memory, parameters (32 bits) or of any memory (64 bits)
//   i        a number
struct Form {
  std::string pattern;
  Function run = nullptr;
  Kind kind = Kind::kPlain;
  int8_t mask_operand = Instruction::kWholeWarp;
  Space space = Space::kGeneric;
};
// All forms of an opcode with its modifiers, like "fma.rn.f32"; none if it is not known.
const std::vector<Form>& FormsOf(const std::string& opcode);

// The opcodes by family.
using FormTable = std::unordered_map<std::string, std::vector<Form>>;
void AddArithmetic(FormTable& table);
void AddConversions(FormTable& table);
void AddMemory(FormTable& table);
void AddWarpOperations(FormTable& table);

}  // namespace kuiper::simt::ptx
