// Measures the vision encoder by itself, with a square image of each size: the time of each stage
// and of the whole. Compares the FLOPs of products and attention with what the machine reaches.
#include <algorithm>
#include <array>
#include <functional>
#include <utility>
#include <vector>

#include "bench/scenarios.h"
#include "kuiper/base/clock.h"
#include "kuiper/model/model.h"
#include "kuiper/model/opened_model.h"
#include "kuiper/model/vision_encoder.h"
#include "kuiper/ops/ops.h"

namespace kuiper::tools {
namespace {

constexpr int kNumStages = 5;  // number of values of VisionStage
constexpr const char* kStageNames[kNumStages] = {"patches", "embedding", "blocks", "merger",
                                                 "deepstack"};
using PerStage = std::array<double, kNumStages>;

// Multiplications and additions of one frame of n patches.
PerStage FlopsOf(const VisionEncoderConfig& c, double n) {
  const double hidden = c.hidden, merged = c.merged_hidden();
  const double block = 2 * n * hidden * (4 * hidden + 2 * c.intermediate) + 4 * n * n * hidden;
  const double merger = 2 * n / c.merge_unit() * merged * (merged + c.out_hidden);
  return {2 * n * hidden * c.patch_values(), 8 * n * hidden, c.depth * block, merger,
          c.num_deepstack() * merger};
}

// FLOP per second of an 8192 x 4096 x 4096 product (a small one on the emulated device): the
// yardstick if the machine has no other.
StatusOr<double> MeasureProduct(Ops& ops, DType weights, bool is_emulated) {
  const int size = is_emulated ? 64 : 4096, rows = is_emulated ? 16 : 8192;
  OpsLimits limits;
  limits.max_tokens = rows;
  limits.max_features = size;
  KU_RETURN_IF_ERROR(ops.Reserve(limits));
  const DType type = ops.ActivationType(weights);
  const size_t bytes = DTypeBytes(type) * static_cast<size_t>(size);
  KU_ASSIGN_OR_RETURN(const Buffer w, ops.device().Allocate(bytes * size));
  KU_ASSIGN_OR_RETURN(const Buffer x, ops.device().Allocate(bytes * rows));
  KU_ASSIGN_OR_RETURN(const Buffer y, ops.device().Allocate(bytes * rows));
  Linear linear;
  linear.in = linear.out = size;
  linear.num_parts = 1;
  linear.parts[0].weight = DenseWeight(w.As(type, {size, size}));
  const Tensor in = x.As(type, {rows, size});
  ops.Run(FillRandomArgs{.out = linear.parts[0].weight.values, .seed = 1});
  ops.Run(FillRandomArgs{.out = in, .seed = 2});
  KU_RETURN_IF_ERROR(ops.Prepare(linear, Epilogue::kStore, type, size));
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const Clock::time_point begin = Clock::now();
    ops.Run(ApplyArgs{
        .out = y.As(type, {rows, size}), .x = in, .linear = linear, .num_decode_rows = 0});
    ops.device().Sync();
    best = std::max(best, 2.0 * rows * size * size / SecondsSince(begin));
  }
  return best;
}

Line StageLine(const char* stage, int side, const Spread& seconds, double flops, double peak) {
  Line line;
  line.Key("stage", stage)
      .Key("side", side)
      .Cost("ms", seconds.Times(1e3), 3)
      .Figure("gflops", flops / seconds.median / 1e9)
      .Figure("machine_gflops", peak / 1e9)
      .Share(kOfRoof, flops / seconds.median / peak);
  return line;
}

// Medians over the repetitions: of stages with syncs between them, and of the whole without. `peak`
// returns the yardstick and is called before and after each.
Status MeasureSide(VisionEncoder& encoder, ComputeDevice& device, int side, int repetitions,
                   const std::function<double()>& peak, Report* report) {
  const VisionEncoderConfig& c = encoder.config();
  const int patches = side / c.patch;
  const std::vector<float> values(static_cast<size_t>(patches) * patches * c.patch_values(), 0.5f);
  const VisionPatches picture{.values = values, .t = 1, .h = patches, .w = patches};
  const int64_t tokens = encoder.num_tokens(1, patches, patches);
  const int64_t rows = 1 + c.num_deepstack();
  KU_ASSIGN_OR_RETURN(const Buffer memory,
                      device.Allocate(static_cast<size_t>(tokens * rows * c.out_hidden) *
                                      DTypeBytes(encoder.out_type())));
  const Tensor out = memory.As(encoder.out_type(), {tokens, rows, c.out_hidden});
  std::array<std::vector<double>, kNumStages> stages;
  std::vector<double> whole, peaks = {peak()};
  KU_RETURN_IF_ERROR(encoder.Encode(picture, out));  // warm-up: loads kernels
  device.Sync();
  for (int i = 0; i < repetitions; ++i) {
    PerStage seconds = {};
    Clock::time_point begin = Clock::now();
    KU_RETURN_IF_ERROR(
        encoder.Encode(picture, out, [&](VisionStage stage, int /*index*/, const Tensor&) {
          device.Sync();
          seconds[static_cast<size_t>(stage)] += SecondsSince(begin);
          begin = Clock::now();
        }));
    for (int stage = 0; stage < kNumStages; ++stage) stages[stage].push_back(seconds[stage]);
    begin = Clock::now();
    KU_RETURN_IF_ERROR(encoder.Encode(picture, out));
    device.Sync();
    whole.push_back(SecondsSince(begin));
    peaks.push_back(peak());
  }
  const PerStage flops = FlopsOf(c, int64_t{patches} * patches);
  const double yardstick = Median(peaks);
  double all = 0;
  for (int stage = 0; stage < kNumStages; ++stage) {
    all += flops[stage];
    if (stages[stage][0] == 0) continue;  // an encoder without deepstack
    report->Add(
        StageLine(kStageNames[stage], side, SpreadOf(stages[stage]), flops[stage], yardstick));
  }
  report->Add(StageLine("all", side, SpreadOf(whole), all, yardstick));
  return OkStatus();
}

}  // namespace

Status BenchVision(OpenedModel opened, Device device, const OpsOptions& options,
                   std::optional<DType> dtype, const std::vector<int>& sides, int repetitions,
                   Report* report) {
  if (!opened.config.vision.has_value()) {
    return Status(StatusCode::kInvalidArgument, "the model has no vision tower");
  }
  const VisionEncoderConfig c = *opened.config.vision;
  int largest = 0;
  for (const int side : sides) {
    if (side % (c.patch * c.merge) != 0) {
      return Status(StatusCode::kInvalidArgument, "--image-side " + std::to_string(side) +
                                                      " is not a multiple of " +
                                                      std::to_string(c.patch * c.merge));
    }
    largest = std::max(largest, side / c.patch);
  }
  const int patches = largest * largest;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Ops> ops, MakeOps(device, options));
  LoadOptions load;
  load.max_context = 1;  // for the decoder, which is loaded but idle
  load.weights.dtype = dtype;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model, LoadModel(std::move(opened), *ops, load));
  const DType weights = model->decoder().config().dtype;
  KU_ASSIGN_OR_RETURN(const std::unique_ptr<Machine> machine,
                      Machine::Make(device, weights, size_t{64} << 20, options.num_threads));
  double product = 0;
  if (!machine->Peak().has_value()) {
    KU_ASSIGN_OR_RETURN(product, MeasureProduct(*ops, weights, device.type == DeviceType::kSimt));
  }
  const auto peak = [&] { return machine->Peak().value_or(product); };
  KU_RETURN_IF_ERROR(ops->Reserve(VisionEncoder::Limits(c, patches)));
  KU_RETURN_IF_ERROR(model->vision()->Reserve(patches));
  const MemorySize memory = VisionEncoder::WorkspaceBytes(c, model->vision()->out_type(), patches);
  report->Print(
      "%s, %s, %d blocks of %d, %d heads of %d, workspace %.1f MB and %.1f MB of the host\n",
      ops->device().Description().c_str(), DTypeName(weights), c.depth, c.hidden, c.heads,
      c.head_dim(), memory.device / 1e6, memory.host / 1e6);
  for (const int side : sides) {
    KU_RETURN_IF_ERROR(
        MeasureSide(*model->vision(), ops->device(), side, repetitions, peak, report));
  }
  return OkStatus();
}

}  // namespace kuiper::tools
