#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "emulator/machine.h"
#include "emulator/ptx_program.h"
#include "emulator/ptx_registers.h"

// Decodes the text between the braces of a kernel to instructions.

namespace kuiper::simt::ptx {
namespace {

std::string_view Trim(std::string_view s) {
  const size_t begin = s.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return s.substr(begin, s.find_last_not_of(" \t\r\n") - begin + 1);
}

// Splits at commas outside of braces and brackets.
std::vector<std::string> SplitOperands(std::string_view s) {
  std::vector<std::string> parts;
  std::string part;
  int depth = 0;
  for (const char c : s) {
    depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    if (c == ',' && depth == 0) {
      parts.emplace_back(Trim(part));
      part.clear();
    } else {
      part += c;
    }
  }
  if (!Trim(part).empty() || !parts.empty()) parts.emplace_back(Trim(part));
  return parts;
}

struct Operand {
  bool is_address = false;
  std::vector<std::string> parts;  // one part; several for a vector {..} or a pair a|b
};

Operand ParseOperand(const std::string& text) {
  if (text.size() >= 2 && text.front() == '[' && text.back() == ']')
    return {true, {std::string(Trim(std::string_view(text).substr(1, text.size() - 2)))}};
  if (text.size() >= 2 && text.front() == '{' && text.back() == '}')
    return {false, SplitOperands(std::string_view(text).substr(1, text.size() - 2))};
  if (const size_t bar = text.find('|'); bar != std::string::npos)
    return {false,
            {std::string(Trim(text.substr(0, bar))), std::string(Trim(text.substr(bar + 1)))}};
  return {false, {text}};
}

int BytesOfLetter(char letter) {
  switch (std::tolower(letter)) {
    case 'p':
      return 1;
    case 'h':
      return 2;
    case 'w':
    case 'a':
      return 4;
    default:
      return 8;
  }
}

bool IsNumber(const std::string& s) {
  return !s.empty() && (std::isdigit(static_cast<unsigned char>(s[0])) || s[0] == '-');
}

// Parses integers in C notation, 0fXXXXXXXX and 0dXXXXXXXXXXXXXXXX; returns false for other text.
bool ParseNumber(const std::string& s, uint64_t* value) {
  char* end = nullptr;
  const char kind = s.size() > 1 && s[0] == '0' ? static_cast<char>(std::tolower(s[1])) : '\0';
  if ((s.size() == 10 && kind == 'f') || (s.size() == 18 && kind == 'd')) {
    *value = std::strtoull(s.c_str() + 2, &end, 16);
  } else if (!IsNumber(s)) {
    return false;
  } else if (s[0] == '-') {
    *value = static_cast<uint64_t>(std::strtoll(s.c_str(), &end, 0));
  } else {
    *value = std::strtoull(s.c_str(), &end, 0);
  }
  return *end == '\0' || (*end == 'U' && end[1] == '\0');
}

// Reads directives, labels and instructions.
class KernelReader {
 public:
  KernelReader(Kernel& kernel, const Symbols& symbols)
      : k_(kernel), symbols_(symbols), registers_(kernel) {}

  void Read(std::string_view body, int line);

 private:
  [[noreturn]] void Bad(const std::string& what, std::string_view text) const {
    Die(k_.file + ":" + std::to_string(line_) + ": " + what + "\n  " + std::string(text) +
        "\n  in " + k_.name);
  }

  void ReadStatement(std::string_view text);
  void ReadDirective(std::string_view text);
  void ReadBranch(const std::vector<std::string>& operands);
  void ReadBarrier(const std::vector<std::string>& operands, Instruction* i);
  void Decode(const std::string& opcode, const std::vector<std::string>& texts, Instruction* i);
  bool Matches(const Form& form, const std::vector<Operand>& operands);
  void Bind(const Form& form, const std::vector<Operand>& operands, Instruction* i);
  void BindAddress(const std::string& text, int64_t* displacement, uint32_t* base);
  // Returns the bytes of an operand; 0 if any width is acceptable.
  int BytesOf(const std::string& operand);
  uint32_t Value(const std::string& operand, char letter);

  Kernel& k_;
  const Symbols& symbols_;
  Registers registers_;
  int line_ = 0;
  std::string_view statement_;
  std::unordered_map<std::string, uint32_t> labels_;
  std::vector<std::pair<size_t, std::string>> jumps_;  // instruction, label
};

int KernelReader::BytesOf(const std::string& operand) {
  uint32_t reg = 0;
  if (operand.empty()) Bad("an operand is missing", statement_);
  if (IsNumber(operand) || symbols_.count(operand) != 0) return 0;
  if (registers_.FindSpecial(operand, &reg)) return 4;
  const Register* const r = registers_.Find(operand);
  if (r == nullptr) Bad("unknown operand " + operand, statement_);
  return r->bytes;
}

uint32_t KernelReader::Value(const std::string& operand, char letter) {
  uint64_t number = 0;
  uint32_t reg = 0;
  if (const auto it = symbols_.find(operand); it != symbols_.end())
    return registers_.Constant(it->second, BytesOfLetter(letter));
  if (IsNumber(operand)) {
    if (!ParseNumber(operand, &number)) Bad("not a number: " + operand, statement_);
    return registers_.Constant(number, BytesOfLetter(letter));
  }
  if (registers_.FindSpecial(operand, &reg)) return reg;
  return registers_.Find(operand)->offset;
}

// Parses the inside of [register], [register+4], [symbol] and [symbol+4].
void KernelReader::BindAddress(const std::string& text, int64_t* displacement, uint32_t* base) {
  const size_t plus = text.find('+');
  const std::string name(Trim(text.substr(0, plus)));
  if (plus != std::string::npos) {
    uint64_t number = 0;
    if (!ParseNumber(std::string(Trim(text.substr(plus + 1))), &number))
      Bad("not an address: " + text, statement_);
    *displacement = static_cast<int64_t>(number);
  }
  if (const auto it = symbols_.find(name); it != symbols_.end()) {
    *displacement += static_cast<int64_t>(it->second);
    *base = registers_.Constant(0, 4);
  } else {
    *base = registers_.Find(name)->offset;
  }
}

// True if the operands have the shapes and widths of the form.
bool KernelReader::Matches(const Form& form, const std::vector<Operand>& operands) {
  size_t n = 0;
  for (std::string_view rest = form.pattern; !rest.empty(); ++n) {
    const std::string_view letters = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), letters.size() + 1));
    if (n == operands.size() || operands[n].parts.size() != letters.size()) return false;
    const bool is_address = letters == "a" || letters == "g";
    if (operands[n].is_address != is_address) return false;
    for (size_t k = 0; k < letters.size(); ++k) {
      const std::string& part = operands[n].parts[k];
      if (letters[k] == 'i') {
        if (!IsNumber(part)) return false;
        continue;
      }
      const std::string name(Trim(is_address ? part.substr(0, part.find('+')) : part));
      const int bytes = BytesOf(name);
      const bool is_written = std::isupper(static_cast<unsigned char>(letters[k])) != 0;
      if (bytes == 0
              ? is_written || (is_address && (letters[k] == 'g' || symbols_.count(name) == 0))
              : bytes != BytesOfLetter(letters[k]))
        return false;
    }
  }
  return n == operands.size();
}

void KernelReader::Bind(const Form& form, const std::vector<Operand>& operands, Instruction* i) {
  size_t operand = 0, part = 0;
  int num_written = 0, num_read = 0, num_addresses = 0;
  for (const char letter : form.pattern) {
    if (letter == ',') {
      ++operand;
      part = 0;
      continue;
    }
    const std::string& text = operands[operand].parts[part++];
    if (letter == 'i') {
      uint64_t number = 0;
      if (!ParseNumber(text, &number)) Bad("not a number: " + text, statement_);
      i->literal = static_cast<uint32_t>(number);
    } else if (letter == 'a' || letter == 'g') {
      BindAddress(text, &i->displacement[num_addresses++], &i->s[num_read++]);
    } else if (std::isupper(static_cast<unsigned char>(letter))) {
      i->d[num_written++] = registers_.Find(text)->offset;
    } else {
      i->s[num_read++] = Value(text, letter);
    }
  }
  i->run = form.run;
  i->kind = form.kind;
  i->space = form.space;
  i->mask_operand = form.mask_operand;
}

void KernelReader::Decode(const std::string& opcode, const std::vector<std::string>& texts,
                          Instruction* i) {
  std::vector<Operand> operands;
  operands.reserve(texts.size());
  for (const std::string& text : texts) operands.push_back(ParseOperand(text));
  const std::vector<Form>& forms = FormsOf(opcode);
  if (forms.empty()) Bad("unknown instruction " + opcode, statement_);
  for (const Form& form : forms)
    if (Matches(form, operands)) return Bind(form, operands, i);
  Bad("unknown operands of " + opcode, statement_);
}

void KernelReader::ReadBranch(const std::vector<std::string>& operands) {
  if (operands.size() != 1) Bad("a branch has one label", statement_);
  jumps_.push_back({k_.code.size(), operands[0]});
}

// Parses bar.sync barrier [, threads]; sets literal to 1 if the number of threads is given.
void KernelReader::ReadBarrier(const std::vector<std::string>& operands, Instruction* i) {
  if (operands.empty() || operands.size() > 2) Bad("a barrier has one or two operands", statement_);
  for (size_t n = 0; n < operands.size(); ++n) {
    if (const int bytes = BytesOf(operands[n]); bytes != 0 && bytes != 4)
      Bad("unknown operands of bar.sync", statement_);
    i->s[n] = Value(operands[n], 'w');
  }
  i->literal = operands.size() == 2;
}

void KernelReader::ReadStatement(std::string_view text) {
  text = statement_ = Trim(text);
  if (text.empty()) return;
  if (text[0] == '.') return ReadDirective(text);
  Instruction i;
  i.line = line_;
  if (text[0] == '@') {
    i.guarded = true;
    i.negated = text.size() > 1 && text[1] == '!';
    const size_t begin = i.negated ? 2 : 1, end = text.find_first_of(" \t\n", begin);
    if (end == std::string_view::npos) Bad("unknown statement", text);
    const std::string name(text.substr(begin, end - begin));
    if (BytesOf(name) != 1) Bad("not a predicate: " + name, statement_);
    i.guard = registers_.Find(name)->offset;
    text = Trim(text.substr(end));
  }
  const size_t end = text.find_first_of(" \t\n");
  const std::string opcode(text.substr(0, end));
  const std::vector<std::string> operands =
      SplitOperands(end == std::string_view::npos ? std::string_view() : text.substr(end));
  if (opcode == "bra" || opcode == "bra.uni") {
    i.kind = Kind::kBranch;
    ReadBranch(operands);
  } else if (opcode == "ret" || opcode == "exit") {
    i.kind = Kind::kReturn;
  } else if (opcode == "bar.sync") {
    i.kind = Kind::kBarrier;
    ReadBarrier(operands, &i);
  } else {
    Decode(opcode, operands, &i);
  }
  k_.code.push_back(i);
  k_.text.emplace_back(statement_);
}

void KernelReader::ReadDirective(std::string_view text) {
  // Shared variables already have their offsets.
  if (!registers_.Declare(std::string(text)) && text.rfind(".pragma", 0) != 0 &&
      text.rfind(".shared", 0) != 0)
    Bad("unknown directive", text);
}

void KernelReader::Read(std::string_view body, int line) {
  line_ = line;
  std::string statement;
  for (size_t at = 0; at < body.size(); ++at) {
    const char c = body[at];
    const bool is_first = Trim(statement).empty();
    if (c == '/' && body.substr(at, 2) == "//") {
      at = std::min(body.find('\n', at), body.size()) - 1;
    } else if (c == ';') {
      ReadStatement(statement);
      statement.clear();
    } else if (c == '{' && is_first) {
      registers_.OpenScope();
    } else if (c == '}' && is_first) {
      registers_.CloseScope();
    } else if (c == ':' && Trim(statement)[0] == '$') {
      labels_[std::string(Trim(statement))] = static_cast<uint32_t>(k_.code.size());
      statement.clear();
    } else {
      statement += c;
    }
    if (c == '\n') ++line_;
  }
  statement_ = statement;
  if (!Trim(statement).empty()) Bad("a statement without its end", statement);
  for (const auto& [at, label] : jumps_) {
    const auto it = labels_.find(label);
    line_ = k_.code[at].line;
    if (it == labels_.end()) Bad("unknown label " + label, k_.text[at]);
    k_.code[at].target = it->second;
  }
  Instruction end;
  end.kind = Kind::kReturn;
  end.line = line_;
  k_.code.push_back(end);
  k_.text.emplace_back("the end");
}

}  // namespace

void ReadBody(Kernel& kernel, const Symbols& symbols, std::string_view body, int line) {
  KernelReader(kernel, symbols).Read(body, line);
}

}  // namespace kuiper::simt::ptx
