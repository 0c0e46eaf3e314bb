// Merges a Hugging Face model folder into one .bin: an ordinary safetensors file that also carries
// the configuration and the tokenizer.
#include <unistd.h>

#include <cstdio>

#include "kuiper/model/pack.h"
#include "tools/tool_args.h"

namespace kuiper::tools {
namespace {

Status Run(const ParsedArgs& args, PackOptions options) {
  const bool terminal = isatty(STDERR_FILENO) != 0;
  int shown = -1;
  options.progress = [&](int64_t done, int64_t total) {
    const int percent = total > 0 ? static_cast<int>(100.0 * done / total) : 100;
    if (terminal && percent != shown) std::fprintf(stderr, "\rpacking: %3d %%", shown = percent);
  };
  Status status = PackModel(args.positionals[0], args.positionals[1], options);
  if (terminal && shown >= 0) std::fputc('\n', stderr);
  return status;
}

}  // namespace
}  // namespace kuiper::tools

int main(int argc, char** argv) {
  kuiper::PackOptions options;
  return kuiper::tools::RunTool(
      argc, argv,
      {"kuiper_pack DIR OUT.bin [--dtype T]",
       {kuiper::tools::TypeFlag(&options.dtype, "convert the weights (default: auto, as stored)")},
       2,
       2},
      [&](const auto& args) { return kuiper::tools::Run(args, options); });
}
