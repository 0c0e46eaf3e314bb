// Places weights where the kernels can read them. A tensor in the required format stays in the
// mapped file if kernels can read it there. Every other tensor is copied or rearranged chunk by
// chunk, and the source pages are released. The peak is thus the model plus one chunk (on a device:
// plus one packed tensor). Used by LoadModel, which determines what the weights are for.
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
  // Copies dense weights with num_threads threads. Calls `report` with the bytes read since the
  // last call.
  WeightPlacer(WeightSource& source, Ops& ops, MappedWeights mapped, int num_threads,
               std::function<void(int64_t bytes)> report);

  // Returns the tensor `host` of the source as `dtype`, or random values if `host` has no data.
  // `name` is used in messages. The result is valid while the source and the buffers live.
  StatusOr<Tensor> Place(const std::string& name, const Tensor& host, DType dtype);
  // Returns the packed matrix, with random values if it has no bytes. Returns kModel for bytes that
  // no correct file has.
  StatusOr<WeightMatrix> PlacePacked(const PackedMatrix& packed);
  // Quantises the dense matrix `host` [rows, in] of the source to INT8, in a format of
  // Int8RowsFormat. Returns kModel if a value is not finite.
  StatusOr<WeightMatrix> PlaceAsInt8(const std::string& name, const Tensor& host,
                                     const WeightFormat& format);
  // Calls Ops::Prepack if no part stayed in its file. Call it once all parts are placed, preferably
  // at once, while the caches still hold some of them.
  void Prepack(Linear* linear);
  // Reads the tensors that stayed in their files, if MappedWeights says so.
  void ReadMapped();
  bool has_mapped() const { return !mapped_.empty(); }
  // Returns the memory of copied and random tensors.
  std::vector<Buffer> TakeBuffers();

 private:
  enum class PackedPart { kValues, kScales, kZeros };

  Status Copy(const std::string& name, const Tensor& host, const Tensor& dst);
  StatusOr<Tensor> PlaceTensor(const PackedTensor& tensor, const WeightFormat& format,
                               PackedPart part);
  Status Unpack(const PackedTensor& tensor, const Tensor& dst);
  Status MakeUp(const WeightFormat& format, PackedPart part, const Tensor& dst);
  StatusOr<Tensor> Allocate(DType dtype, int64_t rows, int64_t columns);
  // Returns host memory in which to write `bytes` for `dst`: dst itself if the host can write
  // there. Deliver copies them to `dst`.
  StatusOr<char*> HostMemoryFor(char* dst, int64_t bytes);
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
  uint64_t num_random_ = 0;  // random tensors so far; the seed of the next one
};

}  // namespace kuiper
