#include "kuiper/report/statistics.h"

#include <cinttypes>

#include "kuiper/base/hash.h"
#include "kuiper/base/text.h"
#include "kuiper/report/number_text.h"

namespace kuiper {
namespace {

// "Images: 2", "Videos: 1" or "Images: 2, videos: 1".
std::string Kinds(size_t images, size_t videos) {
  std::string of_images = images > 0 ? "Images: " + std::to_string(images) : "";
  if (videos == 0) return of_images;
  return of_images + (images > 0 ? ", videos: " : "Videos: ") + std::to_string(videos);
}

}  // namespace

std::vector<std::string> KvCacheLines(const Engine& engine) {
  const KvStats kv = engine.kv_stats();
  const int context = engine.config().max_context;
  const char* type = DTypeName(engine.kv_format().element_type());
  const double megabytes = static_cast<double>(engine.memory_plan().kv_bytes) / kMegabyte;
  const std::string reserved = Format(megabytes < 1 ? "%.2f" : "%.0f", megabytes);
  const char* where = engine.config().device.type == DeviceType::kCUDA ? "GPU" : "host";
  if (!kv.paged) {
    return {"Paged Attention: disabled",
            Format("KVCache: contiguous, %d tokens, dtype=%s, %s MB %s memory (touched as it "
                   "fills)",
                   context, type, reserved.c_str(), where)};
  }
  const int per_sequence = (context + kv.page_size - 1) / kv.page_size;
  return {"Paged Attention: enabled", "Created paged KV cache manager",
          Format("PagedKVCache: page_size=%d, max_blocks_per_seq=%d, total_blocks=%d, dtype=%s "
                 "(x%d layers = %" PRId64 " pages)",
                 kv.page_size, per_sequence, kv.pages_total, type, kv.layers,
                 int64_t{kv.pages_total} * kv.layers),
          Format("PagedKVCache: allocated %s MB %s memory (at most: slabs are added and touched "
                 "as blocks are used)",
                 reserved.c_str(), where)};
}

// The last token was not run through the model.
int TokensInCache(const Completion& c) {
  return c.prompt_tokens + static_cast<int>(c.tokens.size()) - 1 - c.dropped_tokens;
}

std::string OutputLine(const AnswerResult& result) {
  const Completion& c = result.completion;
  const double gbps = result.decode_gbps();
  return Format(gbps >= 10 ? "Output: %d tokens, finish=%s, ids=%s, decode %.0f GB/s"
                           : "Output: %d tokens, finish=%s, ids=%s, decode %.2f GB/s",
                static_cast<int>(c.tokens.size()), FinishReasonName(c.finish),
                TokenHash(c.tokens).c_str(), gbps);
}

std::string ShortStatistics(const AnswerResult& result) {
  const Completion& c = result.completion;
  const int generated = static_cast<int>(c.tokens.size());
  const std::string of = c.cached_tokens > 0 ? " of " + std::to_string(c.prompt_tokens) : "";
  return Format("[Prefill: %d%s tokens, %.1f/s | Decode: %d tokens, %.1f/s (ctx: %d)]",
                c.prompt_tokens - c.cached_tokens, of.c_str(), result.prefill_tps(), generated,
                result.decode_tps(), c.prompt_tokens + generated);
}

std::vector<std::string> StatisticsLines(const AnswerResult& result, bool compact,
                                         bool prefix_cache) {
  const Completion& c = result.completion;
  const int generated = static_cast<int>(c.tokens.size());
  const int computed = c.prompt_tokens - c.cached_tokens;
  std::vector<std::string> lines;
  if (compact) {
    lines.push_back(
        Format("[Prefill: %d tokens, %.1f tokens/s | Decode: %d tokens, %.1f tokens/s "
               "(ctx: %d)]",
               computed, result.prefill_tps(), generated, result.decode_tps(),
               c.prompt_tokens + generated));
  } else {
    lines.push_back("=== Performance Statistics ===");
    lines.push_back(Format("Prompt length: %d tokens", c.prompt_tokens));
    lines.push_back(Format("Prefill: %d tokens, %.1f ms, %.1f tokens/s", computed, c.prefill_ms,
                           result.prefill_tps()));
    lines.push_back(Format("Decode: %d tokens, %.1f ms, %.1f tokens/s", generated, c.decode_ms,
                           result.decode_tps()));
    lines.push_back("===============================");
  }
  if (!result.pictures.empty()) {
    int64_t patches = 0, tokens = 0;
    size_t videos = 0;
    for (const PictureFacts& picture : result.pictures) {
      videos += picture.num_frames > 0;
      patches += picture.patches;
      tokens += picture.tokens;
    }
    lines.push_back(Format("%s, %ld patches, %s, prepared in %.1f ms, %ld encoded in %.1f ms",
                           Kinds(result.pictures.size() - videos, videos).c_str(), patches,
                           Counted(tokens, "token").c_str(), result.picture_ms,
                           result.pictures_encoded, result.encode_ms));
  }
  if (prefix_cache) {
    lines.push_back(
        Format("Prefix cache: %d of %d prompt tokens reused", c.cached_tokens, c.prompt_tokens));
  }
  lines.push_back(OutputLine(result));
  return lines;
}

std::string TotalsText(const ChatTotals& t) {
  return Format(
      "turns: %d\nprompt: %ld tokens, %ld reused, %.1f tokens/s\n"
      "generated: %ld tokens, %.1f tokens/s",
      t.turns, t.prompt_tokens, t.cached_tokens,
      PerSecond(static_cast<double>(t.prompt_tokens - t.cached_tokens), t.prefill_ms),
      t.generated_tokens,
      PerSecond(static_cast<double>(t.generated_tokens - t.turns), t.decode_ms));
}

}  // namespace kuiper
