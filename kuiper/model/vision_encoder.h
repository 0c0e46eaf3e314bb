// The vision tower of Qwen3-VL: patches of pictures to rows for the decoder, on Ops. LoadModel
// makes one beside the decoder when the configuration has a tower; the engine reserves its memory
// and calls Encode. Knows neither pictures (io/image makes the patches) nor prompts.
//
// N patches of a call, H hidden size of the tower, D its head_dim, K deepstack mergers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "kuiper/base/buffer.h"
#include "kuiper/base/status.h"
#include "kuiper/base/tensor.h"
#include "kuiper/model/vision_config.h"
#include "kuiper/model/vision_workspace.h"
#include "kuiper/ops/linear.h"
#include "kuiper/ops/ops.h"

namespace kuiper {

// A weight and a bias.
struct LayerNormWeights {
  Tensor weight, bias;  // [n]
};

struct VisionBlockWeights {
  LayerNormWeights attn_norm, mlp_norm;  // [H]
  Linear qkv;                            // [3H, H]: queries, keys and values of all heads in turn
  Linear proj;                           // [H, H]
  Linear fc1;                            // [intermediate, H]
  Linear fc2;                            // [H, intermediate]
};

// merge * merge patches to a row of the decoder.
struct VisionMergerWeights {
  LayerNormWeights norm;  // [H], or [merge^2 H] of a deepstack merger, which norms merged rows
  Linear fc1;             // [merge^2 H, merge^2 H]
  Linear fc2;             // [out_hidden, merge^2 H]
};

struct VisionWeights {
  Linear patch_embed;  // [H, patch_values]
  Tensor positions;    // [position_side^2, H]
  std::vector<VisionBlockWeights> blocks;
  VisionMergerWeights merger;
  std::vector<VisionMergerWeights> deepstack;
};

// Patches of one picture or video, as VisionInput of io/image has them.
struct VisionPatches {
  std::span<const float> values;  // [t * h * w, patch_values], frames in turn, in merge-block order
  int t = 1, h = 0, w = 0;        // the grid, in patches

  int64_t num_patches() const { return int64_t{t} * h * w; }
};

// What a probe is shown, in the order of the computation.
enum class VisionStage {
  kPatches,    // the product with the patch embedding [rows, H], without positions
  kEmbedding,  // with positions
  kBlock,      // the residual stream [rows, H] behind block `index`
  kMerger,     // what the main merger makes [rows / merge^2, out_hidden]
  kDeepstack,  // what deepstack merger `index` makes
};
// Called after each stage of each pass. Ops may still be in flight: sync before reading.
using VisionProbe = std::function<void(VisionStage stage, int index, Tensor rows)>;
// Asked between layers, with the share of them that is done or, on a device, has begun: false stops
// it.
using VisionProgress = std::function<bool(double done)>;

class VisionEncoder {
 public:
  // The weights' memory belongs to the Model, which outlives the encoder.
  VisionEncoder(VisionTowerConfig config, VisionWeights weights, Ops& ops);

  const VisionTowerConfig& config() const { return config_; }
  int num_deepstack() const { return config_.num_deepstack(); }
  // Rows that a picture or video becomes.
  int64_t num_tokens(int t, int h, int w) const {
    return int64_t{t} * h * w / config_.merge_unit();
  }
  // The element type of what Encode writes.
  DType out_type() const { return activation_type_; }

  // For the plan: what Reserve(max_patches) allocates, and what Ops must have reserved before.
  static MemorySize WorkspaceBytes(const VisionTowerConfig& config, DType activation_type,
                                   int max_patches);
  static OpsLimits Limits(const VisionTowerConfig& config, int max_patches);
  // Memory for passes of so many patches, and Ops made ready for the layers; after Ops::Reserve
  // with the Limits. A frame must fit into a pass, several frames take turns. May be called again.
  Status Reserve(int max_patches);
  int max_patches() const { return space_.max_patches; }

  // out [num_tokens, 1 + K, out_hidden] of out_type(): for each token its row from the main merger,
  // then those of the deepstack mergers. Enqueued: the patches are read before it returns, `out` is
  // there for later work of the queue. A frame's bits depend on nothing but the frame. kInput when
  // a frame has more than max_patches() patches or cannot be merged; kUnavailable when `go_on`,
  // which may be empty as the probe may, stopped it.
  Status Encode(const VisionPatches& patches, const Tensor& out, const VisionProbe& probe = {},
                const VisionProgress& go_on = {});

 private:
  // Frames of a pass.
  struct Pass {
    int frames, h, w;
    int64_t patches() const { return int64_t{frames} * h * w; }
  };

  Status Prepare() const;
  Status CheckGrid(const VisionPatches& patches) const;
  // False: `go_on` stopped it.
  bool RunPass(const Pass& pass, std::span<const float> values, const Tensor& out,
               const VisionProbe& probe, const VisionProgress& go_on);
  void Embed(const Pass& pass, std::span<const float> values, const VisionProbe& probe);
  void RunBlock(const VisionBlockWeights& w, const Pass& pass) const;
  void Attend(const Pass& pass) const;
  // out [patches / merge^2, out_hidden], columns of the result.
  void Merge(const VisionMergerWeights& w, const Pass& pass, const Tensor& out) const;
  void Norm(const Tensor& out, const Tensor& x, const LayerNormWeights& w) const;
  void Apply(const Tensor& out, const Tensor& x, const Linear& linear, Epilogue epilogue) const;
  // Calls f(begin, end) for the panels of the pass's patches.
  template <typename F>
  void ForPanels(const Pass& pass, const F& f) const;

  VisionTowerConfig config_;
  VisionWeights weights_;
  Ops* ops_;
  DType activation_type_;
  VisionWorkspace space_;
};

}  // namespace kuiper
