// The contract between the model and the kernels. Public methods check shapes and dtypes, then call
// the backend's Do*. Every tensor of a call lives on device(); per-step values (positions, lengths,
// tables) are read from device arrays, never from host scalars, so that a recorded step can be
// replayed. No op allocates, syncs or fails at run time: scratch is sized by Reserve.
//
// T tokens of the step, S sequences, R rows that are sampled, H query heads, G kv heads, D
// head_dim.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "kuiper/base/buffer.h"
#include "kuiper/base/status.h"
#include "kuiper/base/tensor.h"
#include "kuiper/kv/kv_view.h"
#include "kuiper/ops/linear.h"

namespace kuiper {

// Which attention kernel runs. Each gives the same bits for paged and contiguous storage.
enum class AttentionKind {
  kMha,     // plain two-pass softmax: the reference
  kFlash1,  // online softmax over key tiles
  kFlash2,  // the backend's fastest; the same as kFlash1 on the CPU
};

struct RopeTable {
  Tensor cos_sin;       // [max_pos, D] f32: D/2 cosines, then D/2 sines, of pair i at each position
  Tensor axis_of_pair;  // [D/2] i32: which row of `positions` rotates pair i (text: all 0)
};

// Which rows of a flat batch belong to which sequence. Sequence s has the query rows
// [cu_seqlens_q[s], cu_seqlens_q[s+1]), which are the last ones of its kv_lens[s] tokens.
struct AttnMeta {
  Tensor cu_seqlens_q;  // [S + 1] i32
  Tensor kv_lens;       // [S] i32, including this step's tokens
  int num_seqs = 0;
  int max_q_len = 0;  // bounds for grid sizes, never exact values
  int max_kv_len = 0;
  // Cascade: sequences that begin with the same pages stand next to each other, and a backend may
  // read what they share once for all of them. The bits are those without it.
  // [S] i32: the first shared_lens[s] tokens of s lie on the pages on which s - 1 has its own; less
  // than kv_lens of both, 0 unless both have one query row. Empty = off.
  Tensor shared_lens = {};
};

// Which keys a query sees, and what is added to its scores. The query at position p (row i of a
// sequence has p = kv_len - q_len + i) sees the keys at positions k in [0, kv_len) with
//   causal:                k <= p
//   window > 0 as well:    |k - p| < window
// Keys outside the window are not read. ALiBi (Press et al. 2022) adds slope[head] * (k - p) to the
// scaled score.
struct AttnOptions {
  bool causal = true;
  int window = 0;       // tokens; 0 = off
  Tensor alibi_slopes;  // [H] f32; empty = off
};

// Sampling parameters of R rows; all device arrays. See Ops::Sample.
struct SampleArgs {
  Tensor temperature;         // [R] f32; 0 = greedy
  Tensor top_k;               // [R] i32; 0 = off
  Tensor top_p;               // [R] f32; 1 = off
  Tensor min_p;               // [R] f32; 0 = off
  Tensor seed;                // [R] i64, a bit pattern
  Tensor step;                // [R] i32: index of the token among the request's generated tokens
  Tensor repetition_penalty;  // [R] f32; 1 = off
  Tensor presence_penalty;    // [R] f32; 0 = off
  Tensor frequency_penalty;   // [R] f32; 0 = off
  Tensor penalty_offsets;     // [R + 1] i32 into the two arrays below
  Tensor penalty_tokens;      // [N] i32: distinct ids of the prompt and the output of each row
  Tensor penalty_counts;      // [N] i32: how often the id was generated (0: only in the prompt)
  int vocab_limit = 0;        // ids >= this are padding rows of the model and never chosen
};

// What the largest step needs; Reserve sizes the scratch memory by it.
struct OpsLimits {
  int max_tokens = 0;    // T
  int max_seqs = 0;      // S and R
  int max_features = 0;  // widest input of a linear layer
  int max_context = 0;   // longest kv_len
  int vocab = 0;
  bool cascade = false;  // AttnMeta::shared_lens is used
};

// What the bits of a row depend on besides its own sequence. The CPU is always strict.
enum class Determinism {
  kStrict,  // nothing: prefill equals decode
  kOn,      // whether it is a decode row: rows of prompts have an order of summation of their own
  kOff,     // as kOn, but nobody checks that algorithms of libraries keep to it, or run after run
            // takes the same ones
};

struct OpsOptions {
  int num_threads = 0;  // CPU: 0 = one per usable core
  Determinism determinism = Determinism::kOn;
  AttentionKind attention = AttentionKind::kFlash1;
  // CUDA: Prepare times the library's algorithms for products that no run on this machine has timed
  // before and keeps the choice for all later runs (kernels/cuda/gemm_choice.h).
  bool tune = false;
};

// A step recorded by Ops::Capture. Replay repeats it with the arguments of the recording: memory is
// read again, host scalars are frozen.
class CapturedGraph {
 public:
  virtual ~CapturedGraph() = default;
  virtual void Replay() = 0;
};

class Ops {
 public:
  virtual ~Ops() = default;
  virtual Device device() const = 0;
  // One line for logs and --version, e.g. "cpu (AVX3_BF16, 2 threads)".
  virtual std::string Description() const = 0;
  // Element type of activations for a model whose weights have this type.
  virtual DType ActivationType(DType weights) const = 0;
  // kResourceExhausted when there is not enough memory. Uninitialised; pages of the OS are touched
  // only when used. Never called inside a step.
  virtual StatusOr<Buffer> Allocate(size_t bytes) = 0;
  // Host memory that uploads fastest (plain memory on the CPU).
  virtual StatusOr<Buffer> AllocatePinned(size_t bytes) = 0;
  // Memory that could still be allocated, in bytes.
  virtual size_t FreeBytes() const = 0;
  // Whether host memory comes out of the same memory as the device's.
  virtual bool unified_memory() const = 0;
  virtual Status Reserve(const OpsLimits& limits) = 0;
  // Memory that Reserve(limits) takes, for the memory plan.
  virtual size_t ScratchBytes(const OpsLimits& limits) const = 0;
  // In order with the ops; src stays untouched until Sync or WaitFor a later mark. On a device,
  // neither waits when the host side is pinned memory.
  virtual void Upload(Tensor dst, Tensor src) = 0;
  virtual void Download(Tensor dst, Tensor src) = 0;
  virtual void Sync() = 0;
  // Marks this point in the order of the work; WaitFor returns when everything before the mark is
  // done, while what came after it goes on. Marks may be waited for in any order and repeatedly.
  virtual int64_t Mark() = 0;
  virtual void WaitFor(int64_t mark) = 0;
  // Records `body`, which may only call ops; it is executed once while being recorded.
  virtual StatusOr<std::unique_ptr<CapturedGraph>> Capture(const std::function<void()>& body) = 0;

  // out [T, hidden] = table[ids]; table [vocab, hidden] of any float type; ids [T] i32. An id below
  // zero, -1 - r, stands for sampled[r] of the i32 array that Sample wrote; where that is -1 (not
  // finite), the row of out is NaN.
  void Embed(Tensor out, Tensor table, Tensor ids, Tensor sampled = {});
  // out, dense of any float type and shape: made-up weights with random signs and magnitudes from
  // 2^-7 to 2^-6. Value i depends on (seed, i) only: it is the same in every type, on every device.
  void FillRandom(Tensor out, uint64_t seed);
  // out [R, hidden] = x[rows]; rows [R] i32.
  void GatherRows(Tensor out, Tensor x, Tensor rows);
  // out [T, n] = x / sqrt(mean(x^2) + eps) * weight; weight [n], x and out of any float types.
  void RmsNorm(Tensor out, Tensor x, Tensor weight, float eps);
  // y [T, w.out] = x [T, w.in] W^T + b, finished as `epilogue` says. The first num_decode_rows rows
  // are of decode steps, the others of prompts. The order of summation along `in` depends on the
  // weight's shape and type and on this difference only (not even on that when strict), never on T.
  void Apply(Tensor out, Tensor x, const Linear& w, Epilogue epilogue = Epilogue::kStore,
             int num_decode_rows = kAllRows);
  static constexpr int kAllRows = std::numeric_limits<int>::max();
  // Makes Apply with these arguments fast for the rows of prompts; after Reserve, before steps. May
  // measure and takes memory for as long as it runs.
  virtual Status Prepare(const Linear& w, Epilogue epilogue, DType out_type) = 0;
  // From column slices q [T, H*D], k and v [T, G*D] to what attention reads. Heads of q and k get
  // an RMSNorm when its weights [D] are given (Qwen3) and a rotation of the pairs (i, i + D/2)
  // ("rotate half"); q changes in place, k and v go to the slots [T] i32 of the cache. positions
  // [axes, T] i32.
  void QkNormRopeStore(Tensor q, Tensor k, Tensor v, Tensor q_norm, Tensor k_norm, float eps,
                       const RopeTable& rope, Tensor positions, const KvView& kv, Tensor slots);
  // Writes k and v [T, G*D] to the slots [T] i32 of the cache.
  void StoreKv(const KvView& kv, Tensor k, Tensor v, Tensor slots);
  // Copies tokens of pages (contiguous: cache rows) within the cache, all layers at once: copies
  // [C, 3] i32 = (from, to, n) copies the first n tokens of page `from` to page `to`. kv is the
  // view of any layer. No page is the target of two copies, or both source and target.
  void CopyPages(const KvView& kv, Tensor copies);
  // out [T, H*D]: attention of q [T, H*D] over the cached keys and values of its sequence,
  // softmax(q k^T * scale) v; query head h reads kv head h / (H / G).
  void Attention(Tensor out, Tensor q, const KvView& kv, const AttnMeta& meta, float scale,
                 const AttnOptions& options = {});
  // tokens [R] i32 from logits [R, vocab] f32: penalties, then temperature, top-k, top-p, min-p and
  // a Gumbel-max draw that depends on (logits, parameters, seed, step) only; ties go to the lowest
  // id. A row with a NaN or +inf among its logits gives -1. The logits are not modified.
  void Sample(Tensor tokens, Tensor logits, const SampleArgs& args);

 protected:
  // One pure virtual per op: a backend that misses one does not compile.
  virtual void DoEmbed(Tensor out, Tensor table, Tensor ids, Tensor sampled) = 0;
  virtual void DoFillRandom(Tensor out, uint64_t seed) = 0;
  virtual void DoGatherRows(Tensor out, Tensor x, Tensor rows) = 0;
  virtual void DoRmsNorm(Tensor out, Tensor x, Tensor weight, float eps) = 0;
  virtual void DoApply(Tensor out, Tensor x, const Linear& w, Epilogue epilogue,
                       int num_decode_rows) = 0;
  virtual void DoQkNormRopeStore(Tensor q, Tensor k, Tensor v, Tensor q_norm, Tensor k_norm,
                                 float eps, const RopeTable& rope, Tensor positions,
                                 const KvView& kv, Tensor slots) = 0;
  virtual void DoStoreKv(const KvView& kv, Tensor k, Tensor v, Tensor slots) = 0;
  virtual void DoCopyPages(const KvView& kv, Tensor copies) = 0;
  virtual void DoAttention(Tensor out, Tensor q, const KvView& kv, const AttnMeta& meta,
                           float scale, const AttnOptions& options) = 0;
  virtual void DoSample(Tensor tokens, Tensor logits, const SampleArgs& args) = 0;
};

// kUnavailable when this build has no such backend or the machine no such device.
StatusOr<std::unique_ptr<Ops>> MakeOps(Device device, const OpsOptions& options);
// The devices for which MakeOps gives Ops, the CPU first.
std::vector<Device> UsableDevices();
// The devices this build can use, for --version: "cpu" or "cpu, cuda (sm_87, ...)".
std::string CompiledDevices();

}  // namespace kuiper
