// Kernels in nvcc's PTX, decoded for execution: written by ptx_parse.cpp, executed by ptx_run.cpp.
// A warp is executed in lockstep. A register has 32 contiguous lanes (16-bit registers use lanes of
// 32 bits), a predicate one bit per lane. Operands are byte offsets into the registers of a warp.
// Immediates are registers that no instruction writes.
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
  int64_t displacement[2] = {};    // offsets of the addresses, in the order of the text
  uint32_t literal = 0;            // a literal operand, like that of cp.async.wait_group
  uint32_t guard = 0, target = 0;  // the guarding predicate; the target of a branch
  Kind kind = Kind::kPlain;
  Space space = Space::kGeneric;
  bool guarded = false, negated = false;
  int8_t mask_operand = kWholeWarp;  // index in s
  int line = 0;                      // line in the file
};

struct Special {  // a register that the device sets, like %tid.x
  enum Name : uint8_t { kTid, kNtid, kCtaid, kNctaid, kLaneid, kWarpid };
  Name name;
  uint8_t axis;
  uint32_t reg;
};
struct Constant {
  uint32_t reg;
  int bytes;  // bytes of a lane: 4 or 8
  uint64_t value;
};

struct Kernel {
  std::string name, file;  // demangled; file name without its folder
  std::vector<Instruction> code;
  std::vector<std::string> text;  // text of each instruction
  std::vector<Constant> constants;
  std::vector<Special> specials;
  size_t parameter_bytes = 0, register_bytes = 0;
  size_t shared_bytes = 0;      // bytes of its variables; dynamic memory follows them
  uint32_t max_threads = 1024;  // limit from .maxntid
};

// Returns the demangled name; names that are not mangled stay unchanged.
std::string Demangled(const std::string& name);

// Returns the kernels of a module. On unknown text it ends the process with file, line and text.
std::vector<std::unique_ptr<Kernel>> ParseModule(const std::string& text, const std::string& file);
// Offsets of variables in shared memory and of parameters in the parameter block.
using Symbols = std::unordered_map<std::string, size_t>;
// Decodes the text between the outermost braces of a kernel, which begins at `line` of the file.
void ReadBody(Kernel& kernel, const Symbols& symbols, std::string_view body, int line);

// One combination of operands of an opcode, and its effect. `pattern` describes the operands in the
// order of the text, separated by commas; several letters are a vector. The letters are:
//   P H W L  a register that is written: a predicate, or 16, 32, 64 bits wide.
//   p h w l  a register or an immediate that is read.
//   a g      an address: in shared memory or parameters (32 bits), or in any memory (64 bits).
//   i        a number.
struct Form {
  std::string pattern;
  Function run = nullptr;
  Kind kind = Kind::kPlain;
  int8_t mask_operand = Instruction::kWholeWarp;
  Space space = Space::kGeneric;
};
// Returns all forms of an opcode with its modifiers, like "fma.rn.f32"; empty if it is unknown.
const std::vector<Form>& FormsOf(const std::string& opcode);

// The opcodes by family.
using FormTable = std::unordered_map<std::string, std::vector<Form>>;
void AddArithmetic(FormTable& table);
void AddConversions(FormTable& table);
void AddMemory(FormTable& table);
void AddWarpOperations(FormTable& table);

}  // namespace kuiper::simt::ptx
