#include "emulator/ptx_device.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "emulator/ptx_compare.h"
#include "emulator/ptx_program.h"
#include "emulator/ptx_run.h"

namespace kuiper::simt {
namespace {

void Replace(const std::string& from, const std::string& to, std::string* s) {
  for (size_t at = 0; (at = s->find(from, at)) != std::string::npos; at += to.size())
    s->replace(at, from.size(), to);
}

// Returns the common name of both compilations of a kernel: scope, name and template arguments.
std::string KernelName(std::string name) {
  Replace("(anonymous namespace)::", "", &name);
  Replace("kuiper::simt_gpu::", "kuiper::cuda::", &name);
  Replace("kuiper::simt::dialect::", "", &name);
  // The name of a template includes its return type and parameters, that of a function may not.
  return name.rfind("void ", 0) == 0 ? name : name.substr(0, name.find('('));
}

// Returns the kernel name in KernelCall::name, for example std::integral_constant<void (*)(int),
// &kernel>. There, the name of a template is in parentheses.
std::string NameInType(const char* type_name) {
  std::string name = ptx::Demangled(type_name);
  const size_t begin = name.find(", &"), end = name.rfind('>');
  if (begin == std::string::npos) Die("not the type of a kernel: " + name);
  name = name.substr(begin + 3, end - begin - 3);
  if (name.front() == '(') name = name.substr(1, name.size() - 2);
  return KernelName(name);
}

struct LoadedKernel {
  std::unique_ptr<ptx::Kernel> kernel;
  ptx::Usage usage;
};

// The kernels of a folder by name, and their usage.
class Program {
 public:
  explicit Program(const std::string& folder) {
    std::error_code error;
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error))
      if (entry.path().extension() == ".ptx") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const auto& file : files) Load(file);
    if (kernels_.empty())
      Die("KUIPER_SIMT_PTX=" + folder + (error ? ": " + error.message() : ": no kernel is there"));
  }

  LoadedKernel& Find(const char* type_name) {
    LoadedKernel*& found = by_type_[type_name];
    if (found != nullptr) return *found;
    const std::string name = NameInType(type_name);
    const auto it = kernels_.find(name);
    if (it == kernels_.end()) Die("no PTX has the kernel " + name);
    return *(found = &it->second);
  }

  // Returns a report line per kernel about its activity since the last call.
  std::string TakeReport() {
    std::string report;
    for (auto& [name, loaded] : kernels_) {
      report += ptx::ReportLine(name, *loaded.kernel, loaded.usage) + "\n";
      loaded.usage = NoUsage(*loaded.kernel);
    }
    return report;
  }

 private:
  static ptx::Usage NoUsage(const ptx::Kernel& kernel) {
    ptx::Usage usage;
    usage.executed.resize(kernel.code.size());
    usage.counts_traffic = CurrentOptions().ptx_traffic;
    return usage;
  }

  void Load(const std::filesystem::path& path) {
    std::ifstream in(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
    for (auto& kernel : ptx::ParseModule(text, path.filename().string())) {
      const std::string name = KernelName(kernel->name);
      LoadedKernel& loaded = kernels_[name];
      if (loaded.kernel != nullptr)
        Die(loaded.kernel->file + " and " + kernel->file + " both have " + name);
      loaded.usage = NoUsage(*kernel);
      loaded.kernel = std::move(kernel);
    }
  }

  std::map<std::string, LoadedKernel> kernels_;
  std::unordered_map<const char*, LoadedKernel*> by_type_;
};

// The programs of this process; the destructor writes the report.
class Programs {
 public:
  ~Programs() {
    const std::string& path = CurrentOptions().ptx_report;
    if (path.empty() || programs_.empty()) return;
    std::ofstream out(path, std::ios::binary);
    out << TakeReport() << std::flush;
    if (!out) Die("KUIPER_SIMT_PTX_REPORT=" + path + " cannot be written");
  }

  std::string TakeReport() {
    if (programs_.empty()) return {};
    std::string report = ptx::ReportHeader() + "\n";
    for (auto& [folder, program] : programs_) report += program.TakeReport();
    return report;
  }

  Program& Get(const std::string& folder) {
    return programs_.try_emplace(folder, folder).first->second;
  }

 private:
  std::map<std::string, Program> programs_;
};

Programs& AllPrograms() {
  CurrentOptions();  // constructed first, so destroyed last
  static Programs programs;
  return programs;
}

}  // namespace

std::string TakePtxReport() {
  return AllPrograms().TakeReport();
}

void RunCall(const KernelCall& call) {
  const Options& options = CurrentOptions();
  if (options.ptx.empty() || call.name == nullptr) return RunKernel(call.shape, call.body);
  LoadedKernel& loaded = AllPrograms().Get(options.ptx).Find(call.name);
  const ptx::Kernel& kernel = *loaded.kernel;
  if (call.parameters.size() != kernel.parameter_bytes)
    Die(kernel.name + " has " + std::to_string(kernel.parameter_bytes) +
        " bytes of parameters in PTX and " + std::to_string(call.parameters.size()) + " here");
  ptx::Contents before;
  ptx::Run(kernel, call.shape, call.parameters.data(), &loaded.usage,
           options.ptx_compare ? &before : nullptr);
  if (options.ptx_compare) ptx::Compare(kernel, before, [&] { RunKernel(call.shape, call.body); });
}

}  // namespace kuiper::simt
