// Runs the ops on the emulated device from nvcc's PTX at the shapes of decode steps and prefills of
// Qwen models. Prints the activity of each kernel for tools/kernel_traffic.py.
//
//     kernel_shapes PTX_FOLDER
//
// Prints a line of column names, then one line per shape and kernel. A line has the shape, the unit
// of its work, the number of units, whether the kernel is hot, and the report of ptx_traffic.h.
// Widths are those of the models. Weights have fewer rows where more rows would only repeat the
// same blocks.
#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "emulator/machine.h"
#include "emulator/ptx_device.h"
#include "test/ops/attention_test_util.h"
#include "test/ops/quantized_matrix.h"

namespace kuiper::test {
namespace {

constexpr DType kType = DType::kBF16;

// Arbitrary numbers, the same on every machine.
Matrix Filled(Ops& ops, DType dtype, int rows, int cols) {
  std::vector<float> values(size_t{1} * rows * cols);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i * 2654435761u % 4096) / 2048.0f - 1.0f;
  return Matrix(ops, dtype, rows, cols, values);
}

// One op at one shape.
struct Case {
  const char* shape;
  const char* kernel;  // part of the kernel names that are reported
  const char* unit;
  double units;
  bool hot;  // its accesses of shared memory must be almost free of conflicts
  std::function<void()> run;
};

// Restarts the counts: until now only preparations ran.
void Begin(Ops& ops) {
  ops.device().Sync();
  simt::TakePtxReport();
}

struct LinearShape {
  DType type;  // type of dense weights, or numeric type of quantised ones
  int in, out, tokens;
  Epilogue epilogue = Epilogue::kStore;
  int decode_rows = ApplyArgs::kAllRows;
  WeightFormat::Kind kind = WeightFormat::Kind::kF32;  // quantised kind; kF32: dense, by `type`

  WeightFormat format() const {
    return kind == WeightFormat::Kind::kF32 ? WeightFormat::Dense(type)
                                            : Quantized(kind, type, 128);
  }
};

void RunLinear(const LinearShape& s) {
  const std::unique_ptr<Ops> ops = MakeTestOps({DeviceType::kSimt, 0});
  const bool paired = s.epilogue == Epilogue::kSwiGlu;
  std::vector<Matrix> weights;
  std::vector<std::unique_ptr<QuantizedOnDevice>> quantized;
  const WeightFormat format = s.format();
  Linear w;
  w.in = s.in;
  w.out = s.out;
  w.num_parts = paired ? 2 : 1;
  for (int i = 0; i < w.num_parts; ++i) {
    const int rows = s.out / w.num_parts;
    if (format.is_quantized()) {
      quantized.push_back(std::make_unique<QuantizedOnDevice>(
          *ops, RandomQuantized(format, rows, s.in, s.kind == WeightFormat::Kind::kInt4, 1)));
      w.parts[i].weight = quantized[i]->matrix();
    } else {
      weights.push_back(Filled(*ops, s.type, rows, s.in));
      w.parts[i].weight = DenseWeight(weights[i].tensor());
    }
  }
  const Matrix x = Filled(*ops, s.type, s.tokens, s.in);
  const Matrix out(*ops, s.type, s.tokens, OutputColumns(w, s.epilogue));
  if (s.decode_rows == 0)
    KU_CHECK(ops->Prepare(w, s.epilogue, s.type, out.tensor().stride[0]).ok());
  Begin(*ops);
  ops->Run(ApplyArgs{.out = out.tensor(),
                     .x = x.tensor(),
                     .linear = w,
                     .epilogue = s.epilogue,
                     .num_decode_rows = s.decode_rows});
  ops->device().Sync();
}

constexpr Shape kHeads06B{16, 8, 128}, kHeads8B{32, 8, 128}, kHeads7B{28, 4, 128};

struct AttentionShape {
  AttentionKind kind;
  DType type;
  Shape heads;
  int queries, context, page_size;  // 0: contiguous
};

void RunAttention(const AttentionShape& s) {
  const std::unique_ptr<Ops> ops = MakeTestOps({DeviceType::kSimt, 0}, {.attention = s.kind});
  const std::vector<Seq> seqs{{0, s.queries, s.context, 0}};
  const Cache cache(*ops, s.type, s.heads, seqs, s.page_size, 1);
  Begin(*ops);
  Attend(*ops, cache, s.type, s.heads, seqs, Mask{});
}

void RunNorm(int tokens, int width) {
  const std::unique_ptr<Ops> ops = MakeTestOps({DeviceType::kSimt, 0});
  const Matrix x = Filled(*ops, kType, tokens, width), weight = Filled(*ops, kType, 1, width);
  const Matrix out(*ops, kType, tokens, width);
  Begin(*ops);
  ops->Run(
      RmsNormArgs{.out = out.tensor(), .x = x.tensor(), .weight = weight.vector(), .eps = 1e-6f});
  ops->device().Sync();
}

void RunLayerNorm(int patches, int width) {
  const std::unique_ptr<Ops> ops = MakeTestOps({DeviceType::kSimt, 0});
  const Matrix x = Filled(*ops, DType::kF32, patches, width);
  const Matrix weight = Filled(*ops, kType, 1, width), bias = Filled(*ops, kType, 1, width);
  const Matrix out(*ops, kType, patches, width);
  Begin(*ops);
  ops->Run(LayerNormArgs{.out = out.tensor(),
                         .x = x.tensor(),
                         .weight = weight.vector(),
                         .bias = bias.vector(),
                         .eps = 1e-6f});
  ops->device().Sync();
}

void RunWeightedRows(int patches, int width) {
  const std::unique_ptr<Ops> ops = MakeTestOps({DeviceType::kSimt, 0});
  const Matrix table = Filled(*ops, kType, 64, width);
  const Matrix out = Filled(*ops, DType::kF32, patches, width);
  std::vector<int32_t> rows;
  for (int i = 0; i < 4 * patches; ++i) rows.push_back(i % 64);
  const Array<int32_t> corners(*ops, rows, patches);
  const Array<float> weights(*ops, std::vector<float>(rows.size(), 0.25f), patches);
  Begin(*ops);
  ops->Run(AddWeightedRowsArgs{.out = out.tensor(),
                               .table = table.tensor(),
                               .rows = corners.matrix(),
                               .weights = weights.matrix()});
  ops->device().Sync();
}

// One token of each of `tokens` sequences.
void RunRope(int tokens, const Shape& heads) {
  const std::unique_ptr<Ops> ops = MakeTestOps({DeviceType::kSimt, 0});
  const int d = heads.head_dim;
  const Cache cache(*ops, kType, heads, std::vector<Seq>(static_cast<size_t>(tokens)), 16, 1);
  std::vector<int32_t> slots, positions;
  for (int t = 0; t < tokens; ++t) {
    slots.push_back(cache.page(t, 0) * 16);
    positions.push_back(t);
  }
  const Matrix q = Filled(*ops, kType, tokens, heads.q_width());
  const Matrix k = Filled(*ops, kType, tokens, heads.kv_width());
  const Matrix v = Filled(*ops, kType, tokens, heads.kv_width());
  const Matrix q_norm = Filled(*ops, kType, 1, d), k_norm = Filled(*ops, kType, 1, d);
  const Matrix table = Filled(*ops, DType::kF32, 64, d);
  const Array<int32_t> axes(*ops, std::vector<int32_t>(static_cast<size_t>(d / 2)));
  const Array<int32_t> device_positions(*ops, positions, 1), device_slots(*ops, slots);
  Begin(*ops);
  ops->Run(QkNormRopeStoreArgs{.q = q.tensor(),
                               .store = {.kv = cache.view(),
                                         .k = k.tensor(),
                                         .v = v.tensor(),
                                         .slots = device_slots.tensor()},
                               .q_norm = q_norm.vector(),
                               .k_norm = k_norm.vector(),
                               .eps = 1e-6f,
                               .rope = {table.tensor(), axes.tensor()},
                               .positions = device_positions.matrix()});
  ops->device().Sync();
}

void RunSample(const SamplingParams& params) {
  constexpr int kVocab = 151936;
  const std::unique_ptr<Ops> ops = MakeTestOps({DeviceType::kSimt, 0});
  const Matrix logits = Filled(*ops, DType::kF32, 1, kVocab);
  const SampleRow row{.params = params, .index = 0, .first_penalty = 0, .num_penalties = 0};
  std::vector<uint8_t> row_bytes(sizeof(row));
  std::memcpy(row_bytes.data(), &row, sizeof(row));
  const Array<uint8_t> rows(*ops, row_bytes);
  const Array<int32_t> none(*ops, std::vector<int32_t>()), token(*ops, {-1});
  Begin(*ops);
  ops->Run(SampleArgs{.tokens = token.tensor(),
                      .logits = logits.tensor(),
                      .rows = rows.tensor(),
                      .penalty_tokens = none.tensor(),
                      .penalty_counts = none.tensor(),
                      .vocab_limit = kVocab});
  ops->device().Sync();
}

// Every kernel of a step with quantised weights, at the widths of Qwen3-8B.
template <typename Linear>
void AddQuantized(const Linear& linear) {
  using Kind = WeightFormat::Kind;
  constexpr struct {
    const char *one, *eight, *many;
    Kind kind;
    DType factors;
  } kFormats[] = {
      {"8b o INT4 FP16 M=1", "8b o INT4 FP16 M=8", "8b o INT4 FP16 M=64", Kind::kInt4, DType::kF16},
      {"8b o INT4 BF16 M=1", "8b o INT4 BF16 M=8", "8b o INT4 BF16 M=64", Kind::kInt4,
       DType::kBF16},
      {"8b o INT8 FP16 M=1", "8b o INT8 FP16 M=8", "8b o INT8 FP16 M=64", Kind::kInt8, DType::kF16},
      {"8b o INT8 BF16 M=1", "8b o INT8 BF16 M=8", "8b o INT8 BF16 M=64", Kind::kInt8,
       DType::kBF16},
      {"8b o E4M3 FP16 M=1", "8b o E4M3 FP16 M=8", "8b o E4M3 FP16 M=64", Kind::kE4M3, DType::kF16},
      {"8b o E4M3 BF16 M=1", "8b o E4M3 BF16 M=8", "8b o E4M3 BF16 M=64", Kind::kE4M3,
       DType::kBF16},
  };
  for (const auto& f : kFormats) {
    LinearShape s{f.factors, 4096, 256, 1};
    s.kind = f.kind;
    linear(f.one, s, true);
    s.tokens = 8;
    linear(f.eight, s, true);
    s.tokens = 64;
    linear(f.many, s, true);
  }
  LinearShape reference{DType::kF32, 4096, 256, 1};
  reference.kind = Kind::kInt4;
  linear("8b o INT4 FP32 M=1", reference, true);
}

// The ops of Qwen3-VL's vision encoders besides products and attention.
void AddVision(std::vector<Case>* cases) {
  const auto add = [&](const char* shape, const char* kernel, const std::function<void()>& run) {
    cases->push_back({shape, kernel, "token", 16, false, run});
  };
  add("2b tower LayerNorm 16", "LayerNorm", [] { RunLayerNorm(16, 1024); });
  add("8b tower LayerNorm 16", "LayerNorm", [] { RunLayerNorm(16, 4608); });
  add("2b tower positions 16", "AddWeightedRows", [] { RunWeightedRows(16, 1024); });
  add("2b tower GELU tanh 16", "FinishKernel", [] {
    RunLinear({kType, 64, 4096, 16, Epilogue::kGeluTanh, 0});
  });
  add("2b tower GELU erf 16", "FinishKernel", [] {
    RunLinear({kType, 64, 4096, 16, Epilogue::kGeluErf, 0});
  });
  add("2b tower GELU erf 16 strict", "GeluKernel", [] {
    RunLinear({kType, 64, 4096, 16, Epilogue::kGeluErf});
  });
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const auto linear = [&](const char* shape, const LinearShape& s, bool is_decode) {
    const double kib = static_cast<double>(s.format().Bytes(s.out, s.in)) / 1024.0;
    cases.push_back({shape, "Skinny", is_decode ? "KiB of weights" : "token",
                     is_decode ? kib : s.tokens, is_decode, [=] { RunLinear(s); }});
  };
  const auto attention = [&](const char* shape, const AttentionShape& s) {
    const double kib = 2.0 * DTypeBytes(s.type) * s.heads.kv_width() * s.context / 1024;
    const bool is_decode = s.queries == 1;
    cases.push_back({shape, "Kernel", is_decode ? "KiB of cache" : "token",
                     is_decode ? kib : s.queries, is_decode || s.kind == AttentionKind::kFlash2,
                     [=] { RunAttention(s); }});
  };
  linear("0.6b qkv M=1", {kType, 1024, 4096, 1}, true);
  linear("0.6b down M=8", {kType, 3072, 1024, 8}, true);
  linear("8b o M=1", {kType, 4096, 512, 1}, true);
  linear("8b o M=8", {kType, 4096, 512, 8}, true);
  linear("8b gate_up M=1", {kType, 1024, 16448, 1, Epilogue::kSwiGlu}, true);
  linear("8b gate_up M=8", {kType, 1024, 16448, 8, Epilogue::kSwiGlu}, true);
  linear("0.6b lm_head M=1", {kType, 512, 65600, 1}, true);
  linear("8b o M=64", {kType, 4096, 256, 64}, true);
  linear("0.6b o FP32 M=1", {DType::kF32, 2048, 256, 1}, true);
  linear("0.6b o FP32 prefill 64", {DType::kF32, 2048, 256, 64}, false);
  cases.push_back({"0.6b SiluMul 16", "FinishKernel", "token", 16, false, [] {
                     RunLinear({kType, 64, 6144, 16, Epilogue::kSwiGlu, 0});
                   }});
  AddQuantized(linear);
  AddVision(&cases);
  const AttentionKind flash1 = AttentionKind::kFlash1, flash2 = AttentionKind::kFlash2;
  attention("0.6b flash2 decode 1024 pages", {flash2, kType, kHeads06B, 1, 1024, 16});
  attention("0.6b flash2 decode 1024 contiguous", {flash2, kType, kHeads06B, 1, 1024, 0});
  attention("8b flash2 decode 1024 pages", {flash2, kType, kHeads8B, 1, 1024, 16});
  attention("7b flash2 decode 1024 pages", {flash2, kType, kHeads7B, 1, 1024, 16});
  attention("7b flash1 decode 1024 pages", {flash1, kType, kHeads7B, 1, 1024, 16});
  attention("0.6b flash1 decode 1024 pages", {flash1, kType, kHeads06B, 1, 1024, 16});
  attention("0.6b flash1 decode 1024 contiguous", {flash1, kType, kHeads06B, 1, 1024, 0});
  attention("8b flash1 decode 1024 pages", {flash1, kType, kHeads8B, 1, 1024, 16});
  attention("0.6b flash1 FP32 decode 1024 pages", {flash1, DType::kF32, kHeads06B, 1, 1024, 16});
  attention("0.6b flash2 prefill 256 pages", {flash2, kType, kHeads06B, 256, 256, 16});
  attention("0.6b flash2 prefill 256 contiguous", {flash2, kType, kHeads06B, 256, 256, 0});
  attention("8b tower flash2 256", {flash2, kType, {2, 2, 72}, 256, 256, 0});
  for (const int tokens : {1, 8}) {
    const bool one = tokens == 1;
    cases.push_back({one ? "0.6b RmsNorm 1" : "0.6b RmsNorm 8", "RmsNorm", "token", 1.0 * tokens,
                     false, [=] { RunNorm(tokens, 1024); }});
    cases.push_back({one ? "8b RmsNorm 1" : "8b RmsNorm 8", "RmsNorm", "token", 1.0 * tokens, false,
                     [=] { RunNorm(tokens, 4096); }});
    cases.push_back({one ? "0.6b QkNormRopeStore 1" : "0.6b QkNormRopeStore 8", "QkNorm", "token",
                     1.0 * tokens, false, [=] { RunRope(tokens, kHeads06B); }});
  }
  cases.push_back({"sample greedy", "Sample", "token", 1, false, [] { RunSample({}); }});
  cases.push_back({"sample top-k top-p", "Sample", "token", 1, false, [] {
                     RunSample({.temperature = 0.7f, .top_k = 20, .top_p = 0.8f, .seed = 1});
                   }});
  return cases;
}

// Returns the lines of a report that name the kernel and show that it ran.
void Print(const Case& c, const std::string& report, bool with_names) {
  size_t begin = report.find('\n') + 1;
  if (with_names) std::printf("shape\tunit\tunits\thot\t%s\n", report.substr(0, begin - 1).c_str());
  for (size_t end; (end = report.find('\n', begin)) != std::string::npos; begin = end + 1) {
    const std::string line = report.substr(begin, end - begin);
    const size_t tab = line.find('\t');
    if (line.compare(tab, 3, "\t0\t") == 0) continue;
    if (line.substr(0, tab).find(c.kernel) == std::string::npos) continue;
    std::printf("%s\t%s\t%g\t%d\t%s\n", c.shape, c.unit, c.units, c.hot, line.c_str());
  }
}

}  // namespace
}  // namespace kuiper::test

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: kernel_shapes PTX_FOLDER\n");
    return 2;
  }
  kuiper::simt::Options& options = kuiper::simt::CurrentOptions();
  options.ptx = argv[1];
  options.ptx_traffic = true;
  bool first = true;
  for (const kuiper::test::Case& c : kuiper::test::Cases()) {
    c.run();
    kuiper::test::Print(c, kuiper::simt::TakePtxReport(), first);
    first = false;
  }
  return 0;
}
