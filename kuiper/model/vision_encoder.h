// The vision encoder of Qwen3-VL: turns image patches into rows for the decoder, on Ops. LoadModel
// makes one next to the decoder if the configuration has a vision encoder; the engine reserves its
// memory and calls Encode. Depends on neither images (io/image makes the patches) nor prompts.
//
// Dimensions: N patches of a call, H hidden size of the encoder, D its head_dim, K deepstack
// mergers.
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
  Linear qkv;                            // [3H, H]: queries, then keys, then values of all heads
  Linear proj;                           // [H, H]
  Linear fc1;                            // [intermediate, H]
  Linear fc2;                            // [H, intermediate]
};

// Merges merge * merge patches into one row of the decoder.
struct VisionMergerWeights {
  LayerNormWeights norm;  // [H]; deepstack mergers normalise merged rows: [merge^2 H]
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

// Patches of one image or video, as in VisionInput of io/image.
struct VisionPatches {
  // [t * h * w, patch_values], frame after frame, in merge-block order.
  std::span<const float> values;
  int t = 1, h = 0, w = 0;  // number of patches: frames, rows, columns

  int64_t num_patches() const { return int64_t{t} * h * w; }
};

// The stages that a probe sees, in the order of computation.
enum class VisionStage {
  kPatches,    // patch embeddings [rows, H], before positions are added
  kEmbedding,  // with positions added
  kBlock,      // the residual stream [rows, H] after block `index`
  kMerger,     // output of the main merger [rows / merge^2, out_hidden]
  kDeepstack,  // output of deepstack merger `index`
};
// Called after each stage of each pass. Ops may still be in flight: sync before reading.
using VisionProbe = std::function<void(VisionStage stage, int index, Tensor rows)>;
// Called between layers with the share of them that is done or, on a device, has begun. Returning
// false stops Encode.
using VisionProgress = std::function<bool(double done)>;

class VisionEncoder {
 public:
  // The weights' memory belongs to the Model, which outlives the encoder.
  VisionEncoder(VisionEncoderConfig config, VisionWeights weights, Ops& ops);

  const VisionEncoderConfig& config() const { return config_; }
  int num_deepstack() const { return config_.num_deepstack(); }
  // Returns the number of tokens that an image or video becomes.
  int64_t num_tokens(int t, int h, int w) const {
    return int64_t{t} * h * w / config_.merge_unit();
  }
  // Returns the element type of Encode's output.
  DType out_type() const { return activation_type_; }

  // For the memory plan: what Reserve(max_patches) allocates, and the limits that Ops must have
  // reserved before.
  static MemorySize WorkspaceBytes(const VisionEncoderConfig& config, DType activation_type,
                                   int max_patches);
  static OpsLimits Limits(const VisionEncoderConfig& config, int max_patches);
  // Allocates memory for passes of up to max_patches patches, and prepares Ops for the layers. Call
  // after Ops::Reserve with the Limits. A frame must fit into a pass; more frames than fit run in
  // several passes. May be called again.
  Status Reserve(int max_patches);
  int max_patches() const { return space_.max_patches; }

  // Writes out [num_tokens, 1 + K, out_hidden] of out_type(): for each token its row from the main
  // merger, then those of the deepstack mergers. Enqueues the work: the patches are read before it
  // returns, and `out` is valid for later work of the queue. A frame's bits depend on that frame
  // only. Returns kInput if a frame has more than max_patches() patches or cannot be merged, and
  // kUnavailable if `go_on` stopped it. `probe` and `go_on` may be empty.
  Status Encode(const VisionPatches& patches, const Tensor& out, const VisionProbe& probe = {},
                const VisionProgress& go_on = {});

 private:
  // Frames that are encoded together.
  struct Pass {
    int frames, h, w;
    int64_t patches() const { return int64_t{frames} * h * w; }
  };

  Status Prepare() const;
  Status CheckGrid(const VisionPatches& patches) const;
  // Returns false if `go_on` stopped it.
  bool RunPass(const Pass& pass, std::span<const float> values, const Tensor& out,
               const VisionProbe& probe, const VisionProgress& go_on);
  void Embed(const Pass& pass, std::span<const float> values, const VisionProbe& probe);
  void RunBlock(const VisionBlockWeights& w, const Pass& pass) const;
  void Attend(const Pass& pass) const;
  // Writes out [patches / merge^2, out_hidden], which are columns of the result.
  void Merge(const VisionMergerWeights& w, const Pass& pass, const Tensor& out) const;
  void Norm(const Tensor& out, const Tensor& x, const LayerNormWeights& w) const;
  void Apply(const Tensor& out, const Tensor& x, const Linear& linear, Epilogue epilogue) const;
  // Calls f(begin, end) for each panel of the pass's patches.
  template <typename F>
  void ForPanels(const Pass& pass, const F& f) const;

  VisionEncoderConfig config_;
  VisionWeights weights_;
  Ops* ops_;
  DType activation_type_;
  VisionWorkspace space_;
};

}  // namespace kuiper
