// Logits of every position of a prompt given as token ids, for comparison with other engines.
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <fstream>

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

Status Run(const Args& args) {
  if (!args.has("ids") || !args.has("out")) {
    return Status(StatusCode::kInvalidArgument, "--ids and --out are needed",
                  std::string("usage: ") + kUsage);
  }
  EngineConfig config;
  config.model_path = args.positionals[0];
  config.need_tokenizer = false;
  config.prompt_logits = true;
  config.paged = args.has("paged-attention");
  KU_ASSIGN_OR_RETURN(config.device, ParseDevice(args));
  KU_ASSIGN_OR_RETURN(config.dtype, ParseType(args));
  KU_ASSIGN_OR_RETURN(config.page_size, ParseInt(args, "page-size", 16, 1, 256));
  KU_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, ReadIds(args.text("ids", "")));
  config.max_context = static_cast<int>(ids.size());
  KU_ASSIGN_OR_RETURN(config.max_num_batched_tokens,
                      ParseInt(args, "chunk", std::min(config.max_context, 512), 1, 1 << 20));
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Engine> engine, Engine::Create(config));

  NpyWriter out;
  KU_RETURN_IF_ERROR(
      out.Open(args.text("out", ""), config.max_context, engine->model_config().decoder.vocab));
  Status written;
  KU_RETURN_IF_ERROR(engine->Logits(ids, [&](int, const float* row) {
    if (written.ok()) written = out.WriteRow(row);
  }));
  KU_RETURN_IF_ERROR(written);
  return out.Close();
}

}  // namespace
}  // namespace kuiper::tools

int main(int argc, char** argv) {
  return kuiper::tools::RunTool(
      argc, argv,
      {kuiper::tools::kUsage,
       {{"ids", "FILE", "token ids separated by white space"},
        {"out", "FILE.npy", "float32 [T, vocab], one row per position"},
        {"device", "D", "cpu, simt or cuda:N (default: cpu)"},
        {"dtype", "T", "auto, fp16, bf16 or fp32 (default: as stored)"},
        {"paged-attention", "", "paged KV cache instead of a contiguous one"},
        {"page-size", "N", "tokens per page (default: 16)"},
        {"chunk", "N", "tokens per step (default: up to 512)"}},
       1,
       1},
      kuiper::tools::Run);
}
