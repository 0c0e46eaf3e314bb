// The ops of one device, as model and engine call them: ops.Run(RmsNormArgs{.out = ..., ...}).
// op_args.h defines each op, compute_device.h the other functions of the device. No op allocates,
// syncs or fails at run time: Reserve sizes the scratch memory. The backends under kernels/
// implement this class, which depends on none of them.
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
  // The device that the ops run on; it lives as long as the ops do.
  ComputeDevice& device() const { return device_; }
  // Returns the type of activations for a model whose weights have this type.
  virtual DType ActivationType(DType weights) const = 0;
  // Returns the kernel that Run(AttentionArgs) uses for a model whose weights have this type: the
  // chosen kind, or its replacement if that kind does not apply.
  virtual AttentionKind AttentionFor(DType weights, KvFormat kv, int head_dim) const = 0;
  virtual Status Reserve(const OpsLimits& limits) = 0;
  // Memory that Reserve(limits) allocates, for the memory plan.
  virtual size_t ScratchBytes(const OpsLimits& limits) const = 0;
  // May rearrange the values, scales and zero points of all parts, in place, into the order that
  // Apply reads fastest. The memory must be used only by this layer, and by Embed if
  // is_table_prepacked is set. Apply gives the same bits before and afterwards.
  virtual void Prepack(Linear*) {}
  // Makes Apply with such arguments fast for prefill rows. Call after Reserve, before steps.
  // `out_stride`: elements between output rows. May run measurements, and uses memory during the
  // call.
  virtual Status Prepare(const Linear& linear, Epilogue epilogue, DType out_type,
                         int64_t out_stride) = 0;

  // Run(NameArgs) for each op: checks the arguments, then computes unless there is nothing to do.
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

// Returns kUnavailable if this build has no such backend or the machine no such device.
StatusOr<std::unique_ptr<Ops>> MakeOps(Device device, const OpsOptions& options);
// True if MakeOps can make Ops for the device. To check a GPU, it initialises the GPU, which takes
// some of its memory; Ops made later reuse that.
bool IsUsable(Device device);
// Returns all usable devices, the CPU first.
std::vector<Device> UsableDevices();
// Returns the devices this build supports, as in Engine::Version: "cpu (Highway 1.2.0: AVX3, ...)"
// or "cpu (...), cuda (sm_87, ...)".
std::string CompiledDevices();

}  // namespace kuiper
