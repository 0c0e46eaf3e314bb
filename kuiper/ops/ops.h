// The ops of one device, as model and engine call them: ops.Run(RmsNormArgs{.out = ..., ...}).
// op_args.h says what each of them does, compute_device.h what the device offers besides. No op
// allocates, syncs or fails at run time: scratch is sized by Reserve. The backends under kernels/
// implement this class; it knows none of them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "kuiper/base/status.h"
#include "kuiper/ops/compute_device.h"
#include "kuiper/ops/op_args.h"
#include "kuiper/ops/ops_options.h"

namespace kuiper {

class Ops {
 public:
  virtual ~Ops() = default;
  // What the ops run on; it lives as long as they do.
  ComputeDevice& device() const { return device_; }
  // Element type of activations for a model whose weights have this type.
  virtual DType ActivationType(DType weights) const = 0;
  // The kernel that Run(AttentionArgs) takes for a model whose weights have this type: the chosen
  // kind, or what takes its place where it cannot.
  virtual AttentionKind AttentionFor(DType weights, KvFormat kv, int head_dim) const = 0;
  virtual Status Reserve(const OpsLimits& limits) = 0;
  // Memory that Reserve(limits) takes, for the memory plan.
  virtual size_t ScratchBytes(const OpsLimits& limits) const = 0;
  // May put all parts' values, scales and zeros into the order in which Apply reads them fastest,
  // in place. They are in memory that only this layer uses, and Embed, which is told; Apply gives
  // the same bits before and afterwards.
  virtual void Prepack(Linear*) {}
  // Makes Apply with such arguments fast for the rows of prompts; after Reserve, before steps.
  // `out_stride`: elements from one row of the output to the next. May measure and takes memory for
  // as long as it runs.
  virtual Status Prepare(const Linear& linear, Epilogue epilogue, DType out_type,
                         int64_t out_stride) = 0;

  // Run(NameArgs) for each op: checks the arguments, then computes if there is something to do.
#define KU_RUN_OP(Name)                          \
  void Run(const Name##Args& args) {             \
    args.Check(ArgChecker(#Name, device_.id())); \
    if (args.HasWork()) Compute(args);           \
  }
  KU_FOR_EACH_OP(KU_RUN_OP)
#undef KU_RUN_OP

 protected:
  explicit Ops(ComputeDevice& device) : device_(device) {}

 private:
#define KU_COMPUTE_OP(Name) virtual void Compute(const Name##Args& args) = 0;
  KU_FOR_EACH_OP(KU_COMPUTE_OP)
#undef KU_COMPUTE_OP

  ComputeDevice& device_;
};

// kUnavailable when this build has no such backend or the machine no such device.
StatusOr<std::unique_ptr<Ops>> MakeOps(Device device, const OpsOptions& options);
// Whether MakeOps gives Ops for the device. Asks a GPU whether it can run the kernels, which makes
// it ready for work and takes some of its memory; Ops that are made later find it so.
bool IsUsable(Device device);
// All that can be used, the CPU first.
std::vector<Device> UsableDevices();
// The devices this build can use, as Engine::Version lists them: "cpu (Highway 1.2.0: AVX3, ...)"
// or "cpu (...), cuda (sm_87, ...)".
std::string CompiledDevices();

}  // namespace kuiper
