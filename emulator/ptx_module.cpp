#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "emulator/machine.h"
#include "emulator/ptx_program.h"
#include "emulator/ptx_text.h"

// The outer part of a PTX module: its kernels, their parameters, and the offsets of variables.

namespace kuiper::simt::ptx {
namespace {

size_t RoundUp(size_t n, size_t to) {
  return (n + to - 1) / to * to;
}

struct Variable {
  std::string name;
  size_t align = 0, bytes = 0;
};

// Parses (.align N) .type (.ptr (.space) (.align N)) name ([N]), from `at` to the last word.
bool ReadVariable(const std::vector<std::string>& words, size_t at, Variable* v) {
  const auto word = [&](size_t n) { return n < words.size() ? words[n] : std::string(); };
  size_t element = 0, count = 1, unused = 0;
  if (word(at) == ".align") {
    if (!ReadNumber(word(at + 1), &v->align)) return false;
    at += 2;
  }
  if (!ReadType(word(at++), &element)) return false;
  if (word(at) == ".ptr") {
    at += word(at + 1)[0] == '.' && word(at + 1) != ".align" ? 2 : 1;
    if (word(at) == ".align") at += ReadNumber(word(at + 1), &unused) ? 2 : 1;
  }
  v->name = word(at++);
  if (word(at) == "[") {
    if (!ReadNumber(word(at + 1), &count) || word(at + 2) != "]") return false;
    at += 3;
  }
  v->bytes = element * count;
  if (v->align == 0) v->align = element;
  return at == words.size() && !v->name.empty() && v->name[0] != '.';
}

class ModuleReader {
 public:
  ModuleReader(const std::string& text, const std::string& file) : text_(text), file_(file) {}

  std::vector<std::unique_ptr<Kernel>> Read() {
    while (SkipBlanksAndComments()) {
      const size_t end = std::min(text_.find_first_of("\n;({", at_), text_.size());
      const std::string head = text_.substr(at_, end - at_);
      if (end < text_.size() && text_[end] == '(') {
        ReadKernel(head, end);
      } else {
        ReadDirective(head);
        at_ = end + 1;
      }
    }
    return std::move(kernels_);
  }

 private:
  [[noreturn]] void Bad(const std::string& what, const std::string& text) const {
    const auto line =
        1 + std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(at_), '\n');
    Die(file_ + ":" + std::to_string(line) + ": " + what + "\n  " + text);
  }

  // Returns false at the end of the text.
  bool SkipBlanksAndComments() {
    for (;;) {
      at_ = text_.find_first_not_of(" \t\r\n", at_);
      if (at_ == std::string::npos) return false;
      if (text_.compare(at_, 2, "//") != 0) return true;
      at_ = text_.find('\n', at_);
    }
  }

  void ReadDirective(const std::string& head) {
    const std::vector<std::string> words = Words(head);
    // .extern .shared .align N .b8 name[]
    if (words.size() == 8 && words[0] == ".extern" && words[1] == ".shared" && words[6] == "[") {
      dynamic_.push_back(words[5]);
    } else if (words.empty() ||
               (words[0] != ".version" && words[0] != ".target" && words[0] != ".address_size")) {
      Bad("unknown directive", head);
    }
  }

  size_t After(const char* what, size_t from) const {
    const size_t at = text_.find(what, from);
    if (at == std::string::npos) Bad(std::string("no ") + what + " follows", text_.substr(at_, 80));
    return at;
  }

  // (.visible) .entry name ( parameters ) directives { body }
  void ReadKernel(const std::string& head, size_t open) {
    std::vector<std::string> words = Words(head);
    if (words.empty()) Bad("not a kernel", head);
    if (words[0] == ".visible" || words[0] == ".weak") words.erase(words.begin());
    if (words.size() != 2 || words[0] != ".entry") Bad("not a kernel", head);
    auto kernel = std::make_unique<Kernel>();
    kernel->name = Demangled(words[1]);
    kernel->file = file_;
    const size_t close = After(")", open), brace = After("{", close);
    Symbols symbols;
    LayOutParameters(text_.substr(open + 1, close - open - 1), *kernel, symbols);
    ReadBounds(Words(text_.substr(close + 1, brace - close - 1)), *kernel);
    size_t end = brace + 1;
    for (int depth = 1; depth > 0; ++end) {
      end = text_.find_first_of("{}", end);
      if (end == std::string::npos) Bad("no end of the kernel follows", head);
      depth += text_[end] == '{' ? 1 : -1;
    }
    const std::string body = text_.substr(brace + 1, end - brace - 2);
    LayOutShared(body, *kernel, symbols);
    const auto begin = text_.begin();
    const auto line = std::count(begin, begin + static_cast<ptrdiff_t>(brace), '\n') + 1;
    ReadBody(*kernel, symbols, body, static_cast<int>(line));
    kernels_.push_back(std::move(kernel));
    at_ = end;
  }

  // Parses .maxntid x (, y (, z)); .minnctapersm has no effect here.
  static void ReadBounds(const std::vector<std::string>& words, Kernel& kernel) {
    const auto at = std::find(words.begin(), words.end(), ".maxntid");
    if (at == words.end()) return;
    size_t threads = 1, number = 0;
    for (auto word = at + 1; word != words.end() && (*word == "," || ReadNumber(*word, &number));
         ++word)
      if (*word != ",") threads *= number;
    kernel.max_threads = static_cast<uint32_t>(threads);
  }

  void LayOutParameters(const std::string& list, Kernel& kernel, Symbols& symbols) {
    for (size_t at = 0; at < list.size();) {
      const size_t comma = std::min(list.find(',', at), list.size());
      const std::string text = list.substr(at, comma - at);
      at = comma + 1;
      const std::vector<std::string> words = Words(text);
      Variable v;
      if (words.empty()) continue;
      if (words[0] != ".param" || !ReadVariable(words, 1, &v)) Bad("unknown parameter", text);
      symbols[v.name] = RoundUp(kernel.parameter_bytes, v.align);
      kernel.parameter_bytes = symbols[v.name] + v.bytes;
    }
  }

  // Dynamic memory follows the variables of the kernel.
  void LayOutShared(const std::string& body, Kernel& kernel, Symbols& symbols) {
    for (size_t at = 0; (at = body.find(".shared .", at)) != std::string::npos; ++at) {
      const std::string text = body.substr(at, body.find(';', at) - at);
      Variable v;
      if (!ReadVariable(Words(text), 1, &v)) Bad("unknown shared variable", text);
      symbols[v.name] = RoundUp(kernel.shared_bytes, v.align);
      kernel.shared_bytes = symbols[v.name] + v.bytes;
    }
    if (!dynamic_.empty()) kernel.shared_bytes = RoundUp(kernel.shared_bytes, 16);
    for (const std::string& name : dynamic_) symbols[name] = kernel.shared_bytes;
  }

  const std::string& text_;
  const std::string& file_;
  size_t at_ = 0;
  std::vector<std::string> dynamic_;  // names of the dynamic shared memory
  std::vector<std::unique_ptr<Kernel>> kernels_;
};

}  // namespace

std::string Demangled(const std::string& name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  std::string result = status == 0 ? text : name;
  std::free(text);
  return result;
}

std::vector<std::unique_ptr<Kernel>> ParseModule(const std::string& text, const std::string& file) {
  return ModuleReader(text, file).Read();
}

}  // namespace kuiper::simt::ptx
