#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <regex>
#include <utility>

#include "kuiper/kernels/simt/machine.h"
#include "kuiper/kernels/simt/ptx_program.h"

// The outer part of a PTX module: which kernels it has, their parameters, and where variables are.

namespace kuiper::simt::ptx {
namespace {

size_t RoundUp(size_t n, size_t to) {
  return (n + to - 1) / to * to;
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

  // False at the end of the text.
  bool SkipBlanksAndComments() {
    for (;;) {
      at_ = text_.find_first_not_of(" \t\r\n", at_);
      if (at_ == std::string::npos) return false;
      if (text_.compare(at_, 2, "//") != 0) return true;
      at_ = text_.find('\n', at_);
    }
  }

  void ReadDirective(const std::string& head) {
    static const std::regex kDynamic(
        R"(\.extern\s+\.shared\s+\.align\s+\d+\s+\.b8\s+([\w$]+)\[\]\s*)");
    static const std::regex kKnown(R"(\.version\s[^;]*|\.target\s[^;]*|\.address_size\s[^;]*)");
    std::smatch m;
    if (std::regex_match(head, m, kDynamic)) {
      dynamic_.push_back(m[1]);
    } else if (!std::regex_match(head, kKnown)) {
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
    static const std::regex kEntry(R"((?:\.visible\s+|\.weak\s+)?\.entry\s+([\w$]+)\s*)");
    static const std::regex kMaxThreads(R"(\.maxntid\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?)");
    std::smatch m;
    if (!std::regex_match(head, m, kEntry)) Bad("not a kernel", head);
    auto kernel = std::make_unique<Kernel>();
    kernel->name = Demangled(m[1]);
    kernel->file = file_;
    const size_t close = After(")", open), brace = After("{", close);
    Symbols symbols;
    LayOutParameters(text_.substr(open + 1, close - open - 1), *kernel, symbols);
    const std::string directives = text_.substr(close, brace - close);
    if (std::regex_search(directives, m, kMaxThreads)) {
      kernel->max_threads = 1;
      for (int n = 1; n <= 3; ++n)
        if (m[n].matched) kernel->max_threads *= static_cast<uint32_t>(std::stoul(m[n]));
    }
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

  void LayOutParameters(const std::string& list, Kernel& kernel, Symbols& symbols) {
    static const std::regex kParameter(
        R"(\s*\.param\s+(?:\.align\s+(\d+)\s+)?\.[bsuf](\d+)\s+(?:\.ptr\s+(?:\.\w+\s+)?(?:\.align\s+\d+\s+)?)?([\w$]+)(?:\[(\d+)\])?\s*)");
    std::smatch m;
    for (size_t at = 0; at < list.size();) {
      const size_t comma = std::min(list.find(',', at), list.size());
      const std::string text = list.substr(at, comma - at);
      at = comma + 1;
      if (text.find_first_not_of(" \t\r\n") == std::string::npos) continue;
      if (!std::regex_match(text, m, kParameter)) Bad("unknown parameter", text);
      const size_t element = std::stoul(m[2]) / 8;
      const size_t offset =
          RoundUp(kernel.parameter_bytes, m[1].matched ? std::stoul(m[1]) : element);
      symbols[m[3]] = offset;
      kernel.parameter_bytes = offset + element * (m[4].matched ? std::stoul(m[4]) : 1);
    }
  }

  // Dynamic memory begins behind the variables of the kernel.
  void LayOutShared(const std::string& body, Kernel& kernel, Symbols& symbols) {
    static const std::regex kShared(
        R"(\.shared\s+\.align\s+(\d+)\s+\.[bsuf](\d+)\s+([\w$]+)(?:\[(\d+)\])?\s*;)");
    for (size_t at = 0; (at = body.find(".shared .", at)) != std::string::npos; ++at) {
      const std::string text = body.substr(at, body.find(';', at) + 1 - at);
      std::smatch m;
      if (!std::regex_match(text, m, kShared)) Bad("unknown shared variable", text);
      const size_t offset = RoundUp(kernel.shared_bytes, std::stoul(m[1]));
      symbols[m[3]] = offset;
      kernel.shared_bytes = offset + std::stoul(m[2]) / 8 * (m[4].matched ? std::stoul(m[4]) : 1);
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
