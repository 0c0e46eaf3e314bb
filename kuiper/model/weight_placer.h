// Brings weights to where the kernels read them. A tensor that has the right form stays where it
// is, in the mapped file, if kernels can read it there; every other one is copied or rearranged
// chunk by chunk, and the pages it was read from are given back, so that the peak is the model plus
// one chunk, or for a device one packed tensor. Used by LoadModel, which knows what weights are
// for.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kuiper/base/buffer.h"
#include "kuiper/base/status.h"
#include "kuiper/base/tensor.h"
#include "kuiper/model/weight_source.h"
#include "kuiper/ops/ops.h"
#include "kuiper/ops/weight_format.h"

namespace kuiper {

class WeightPlacer {
 public:
  // Dense weights are copied by num_threads. `report` hears of the bytes that were read since the
  // last time.
  WeightPlacer(WeightSource& source, Ops& ops, MappedWeights mapped, int num_threads,
               std::function<void(int64_t bytes)> report);

  // The tensor that `host` of the source becomes as `dtype`; made up when it has no data. `name` is
  // for messages. It lives as long as the source and the buffers.
  StatusOr<Tensor> Place(const std::string& name, const Tensor& host, DType dtype);
  // The matrix that the file has packed; made up when it has no bytes. kModel for bytes that no
  // correct file has.
  StatusOr<WeightMatrix> PlacePacked(const PackedMatrix& packed);
  // The dense matrix `host` [rows, in] of the source as codes of 8 bits, in a format of
  // Int8RowsFormat. kModel when values are not finite.
  StatusOr<WeightMatrix> PlaceAsInt8(const std::string& name, const Tensor& host,
                                     const WeightFormat& format);
  // Ops::Prepack, once all parts are placed and if none stayed in its file: best at once, while the
  // caches have some of them.
  void Prepack(Linear* linear);
  // Reads the tensors that stayed in their files, if they are to be read now.
  void ReadMapped();
  bool has_mapped() const { return !mapped_.empty(); }
  // What was copied or made up.
  std::vector<Buffer> TakeBuffers();

 private:
  enum class PackedPart { kValues, kScales, kZeros };

  Status Copy(const std::string& name, const Tensor& host, const Tensor& dst);
  StatusOr<Tensor> PlaceTensor(const PackedTensor& tensor, const WeightFormat& format,
                               PackedPart part);
  Status Unpack(const PackedTensor& tensor, const Tensor& dst);
  Status MakeUp(const WeightFormat& format, PackedPart part, const Tensor& dst);
  StatusOr<Tensor> Allocate(DType dtype, int64_t rows, int64_t columns);
  // Host memory in which `bytes` that belong at `dst` are written: dst itself where the host can.
  // Deliver brings them there.
  StatusOr<char*> HostOf(char* dst, int64_t bytes);
  void Deliver(char* dst, int64_t bytes);

  WeightSource& source_;
  Ops& ops_;
  std::function<void(int64_t bytes)> report_;
  const bool reads_in_place_;
  const MappedWeights mapped_use_;
  const int num_threads_;
  Buffer staging_;  // pinned, for uploads
  std::vector<Buffer> buffers_;
  std::vector<Tensor> mapped_;
  uint64_t num_random_ = 0;  // tensors made up so far, each from a seed of its own
};

}  // namespace kuiper
