// The byte form of a plan: its arrays one after the other, each after its length. One list of
// fields is used for writing and reading.
#include <bit>
#include <concepts>
#include <cstring>

#include "kuiper/engine/step_plan.h"

namespace kuiper {
namespace {

static_assert(std::endian::native == std::endian::little,
              "bytes are written as they lie in memory");

constexpr uint32_t kMagic = 0x4C50534B;  // "KSPL"
constexpr uint32_t kVersion = 2;

template <typename T, typename U>
concept Is = std::same_as<std::remove_const_t<T>, U>;
template <typename T>
concept Scalar = std::is_arithmetic_v<T> || std::same_as<T, TokenRef>;

void Fields(auto& f, Is<Range> auto& range) {
  f(range.begin, range.end);
}
void Fields(auto& f, Is<TokenCount> auto& count) {
  f(count.token, count.count);
}
void Fields(auto& f, Is<TokenBias> auto& bias) {
  f(bias.token, bias.bias);
}
void Fields(auto& f, Is<StepPlan::EmbeddingOverride> auto& patch) {
  f(patch.rows, patch.source, patch.first_row);
}
void Fields(auto& f, Is<StepPlan::PageCopy> auto& copy) {
  f(copy.from, copy.to, copy.num_tokens);
}
void Fields(auto& f, Is<SamplingParams> auto& p) {
  auto& [a, b, c, d, e, g, h, i] = p;
  f(a, b, c, d, e, g, h, i);
}
void Fields(auto& f, Is<StepPlan::Sample> auto& s) {
  f(s.row, s.index, s.params, s.penalties, s.biases, s.allowed);
}
void Fields(auto& f, Is<StepPlan::Entry> auto& e) {
  f(e.sequence, e.begin, e.decodes, e.num_kept_pages, e.tokens, e.pages, e.samples, e.logits_rows,
    e.hidden_rows, e.overrides);
}
void Fields(auto& f, Is<StepPlan> auto& p) {
  f(p.ended, p.copies, p.entries, p.tokens, p.num_axes, p.positions, p.pages, p.samples,
    p.logits_rows, p.penalties, p.biases, p.allowed, p.hidden_layers, p.hidden_rows, p.overrides);
}

class Writer {
 public:
  void operator()(const auto&... fields) { (Write(fields), ...); }
  std::string Take() { return std::move(bytes_); }

 private:
  template <typename T>
  void Write(const T& value) {
    if constexpr (Scalar<T>) {
      bytes_.append(reinterpret_cast<const char*>(&value), sizeof(T));
    } else {
      Fields(*this, value);
    }
  }
  template <typename T>
  void Write(const std::vector<T>& values) {
    Write(static_cast<uint32_t>(values.size()));
    for (const T& value : values) Write(value);
  }

  std::string bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const uint8_t> bytes) : left_(bytes) {}
  void operator()(auto&... fields) { (Read(fields), ...); }
  bool ok() const { return ok_; }
  bool done() const { return ok_ && left_.empty(); }

 private:
  template <typename T>
  void Read(T& value) {
    if constexpr (Scalar<T>) {
      if (left_.size() < sizeof(T)) {
        ok_ = false;
        return;
      }
      if (std::same_as<T, bool> && left_[0] > 1) ok_ = false;
      if (!ok_) return;
      std::memcpy(&value, left_.data(), sizeof(T));
      left_ = left_.subspan(sizeof(T));
    } else {
      Fields(*this, value);
    }
  }
  // Grows with the elements read, so that a wrong length does not allocate memory.
  template <typename T>
  void Read(std::vector<T>& values) {
    uint32_t count = 0;
    Read(count);
    for (uint32_t i = 0; i < count && ok_; ++i) Read(values.emplace_back());
  }

  std::span<const uint8_t> left_;
  bool ok_ = true;
};

}  // namespace

std::string Serialize(const StepPlan& plan) {
  Writer writer;
  writer(kMagic, kVersion, plan);
  return writer.Take();
}

StatusOr<StepPlan> ParseStepPlan(std::span<const uint8_t> bytes) {
  const auto bad = [](const std::string& what) {
    return Status(StatusCode::kInvalidArgument, "step plan: " + what);
  };
  Reader reader(bytes);
  uint32_t magic = 0, version = 0;
  reader(magic, version);
  if (!reader.ok() || magic != kMagic) return bad("unknown format");
  if (version != kVersion) {
    return bad("version " + std::to_string(version) + ", not " + std::to_string(kVersion));
  }
  StepPlan plan;
  reader(plan);
  if (!reader.done()) return bad("wrong number of bytes");
  KU_RETURN_IF_ERROR(CheckPlan(plan));
  return plan;
}

}  // namespace kuiper
