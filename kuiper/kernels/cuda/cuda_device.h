// One CUDA device with one stream: memory, copies, marks (events) and graphs. Owned by CudaOps; it
// does not depend on ops. Compiled a second time for the emulated device.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "kuiper/kernels/cuda/platform.h"
#include "kuiper/ops/compute_device.h"

namespace kuiper::KU_GPU {

class CudaDevice final : public ComputeDevice {
 public:
  // Returns kUnavailable if the device does not exist or cannot run these kernels.
  static StatusOr<std::unique_ptr<CudaDevice>> Open(Device device);
  ~CudaDevice() override;

  Device id() const override { return id_; }
  std::string Description() const override;
  DeviceTraits traits() const override;
  StatusOr<Buffer> Allocate(size_t bytes) override;
  StatusOr<Buffer> AllocatePinned(size_t bytes) override;
  size_t FreeBytes() const override;
  void Upload(Tensor dst, Tensor src) override;
  void Download(Tensor dst, Tensor src) override;
  void Sync() override;
  Status TrySync() override;
  int64_t Mark() override;
  void WaitFor(int64_t mark) override;
  std::unique_ptr<WorkTimer> MakeTimer() override;
  StatusOr<std::unique_ptr<CapturedGraph>> Capture(const std::function<void()>& body) override;
  Status Enqueue(const std::function<void()>& body) override;
  Status SetStream(void* stream) override;
  // Undoes SetStream.
  void UseOwnStream() { stream_ = own_stream_; }

  // Makes this device current for the calling thread and returns the stream to enqueue on.
  cudaStream_t Enter() const;
  bool is_capturing() const { return capturing_; }
  // Captured graphs that still exist: they contain memory addresses.
  int num_graphs() const { return num_graphs_; }
  // Name and size of the device: "NVIDIA H200, sm_90, 132 SMs".
  const std::string& model() const { return model_; }
  int num_sms() const { return num_sms_; }
  size_t sm_shared_bytes() const { return sm_shared_bytes_; }  // shared memory of an SM

 private:
  CudaDevice(Device id, const cudaDeviceProp& properties);
  void Copy(Tensor dst, Tensor src, cudaMemcpyKind kind);

  Device id_;
  std::string model_;
  int num_sms_;
  size_t sm_shared_bytes_;
  bool integrated_;
  cudaStream_t own_stream_ = nullptr;
  cudaStream_t stream_ = nullptr;  // stream in use: own_stream_ or the caller's
  // Mark n is event n % size. An event that was reused marks a later point, so waiting for it is
  // still correct.
  std::array<cudaEvent_t, 4> events_{};
  int64_t num_marks_ = 0;
  bool capturing_ = false;
  int num_graphs_ = 0;
};

}  // namespace kuiper::KU_GPU
