// Logits of every position of a prompt given as token ids, for comparison with other engines.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "kuiper/base/append_file.h"
#include "kuiper/engine/engine.h"
#include "kuiper/io/npy.h"
#include "tools/tool_args.h"

namespace kuiper::tools {
namespace {

constexpr const char* kUsage = "kuiper_logits MODEL --ids FILE --out FILE.npy [options]";

StatusOr<std::vector<int32_t>> ReadIds(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Status(StatusCode::kInput, "cannot read " + path);
  std::vector<int32_t> ids;
  for (std::string word; file >> word;) {
    int32_t id = 0;
    const char* end = word.data() + word.size();
    const auto result = std::from_chars(word.data(), end, id);
    if (result.ec != std::errc() || result.ptr != end) {
      return Status(StatusCode::kInput, path + " holds something that is not a token id after " +
                                            std::to_string(ids.size()) + " ids");
    }
    ids.push_back(id);
  }
  if (ids.empty()) return Status(StatusCode::kInput, path + " holds no token ids");
  return ids;
}

struct Options {
  Options() {
    config.need_tokenizer = false;
    config.paged = false;
    config.prompt_logits = true;
  }

  std::string ids_path, out_path;
  EngineConfig config;
  std::optional<int> chunk;
};

Status Run(const demo::ParsedArgs& args, const Options& options) {
  if (options.ids_path.empty() || options.out_path.empty()) {
    return Status(StatusCode::kInvalidArgument, "--ids and --out are needed",
                  std::string("usage: ") + kUsage);
  }
  EngineConfig config = options.config;
  config.model_path = args.positionals[0];
  KU_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ReadIds(options.ids_path));
  config.max_context = static_cast<int>(ids.size());
  config.max_num_batched_tokens = options.chunk.value_or(std::min(config.max_context, 512));
  KU_RETURN_IF_ERROR(CheckWritable(options.out_path));
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(config));

  NpyWriter out;
  const int vocab = engine->model_config().decoder.vocab;
  KU_RETURN_IF_ERROR(out.Open(options.out_path, config.max_context, vocab));
  Status written;
  std::optional<int> not_finite;  // first position
  KU_RETURN_IF_ERROR(engine->Logits(ids, [&](int position, const float* row) {
    if (written.ok()) written = out.WriteRow(row);
    const bool finite = std::all_of(row, row + vocab, [](float x) { return std::isfinite(x); });
    if (!finite && !not_finite.has_value()) not_finite = position;
  }));
  KU_RETURN_IF_ERROR(written);
  KU_RETURN_IF_ERROR(out.Close());
  if (!not_finite.has_value()) return OkStatus();
  return Status(StatusCode::kInternal,
                "the logits of position " + std::to_string(*not_finite) + " are not finite; " +
                    options.out_path + " has all rows as they are",
                "try --dtype bf16 or fp32");
}

std::vector<demo::Flag> Flags(Options& o) {
  using demo::MakeFlag;
  return {
      MakeFlag("ids", &o.ids_path, "token ids separated by white space", {}, "FILE"),
      MakeFlag("out", &o.out_path, "float32 [T, vocab], one row per position", {}, "FILE.npy"),
      DeviceFlag(&o.config.device),
      TypeFlag(&o.config.dtype, "convert the weights (default: auto, as stored)"),
      HeadTypeFlag(&o.config.int8_head),
      MakeFlag("paged-attention", &o.config.paged, "paged KV cache instead of a contiguous one"),
      MakeFlag("page-size", &o.config.page_size, "tokens per page", {1, 256}),
      MakeFlag("chunk", &o.chunk, "tokens per step (default: up to 512)", {1, 1 << 20})};
}

}  // namespace
}  // namespace kuiper::tools

int main(int argc, char** argv) {
  kuiper::tools::Options options;
  return kuiper::tools::RunTool(
      argc, argv, {kuiper::tools::kUsage, kuiper::tools::Flags(options), 1, 1},
      [&](const auto& args) { return kuiper::tools::Run(args, options); });
}
