// Brings weights to where the kernels read them. A tensor that has the right type stays where it
// is, in the mapped file, if kernels can read it there; every other one is copied chunk by chunk,
// and the pages it was read from are given back, so that the peak is the model plus one chunk. Used
// by LoadModel, which knows what the weights are for.
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

namespace kuiper {

class WeightPlacer {
 public:
  // `report` hears of the bytes that were read since the last time.
  WeightPlacer(WeightSource& source, Ops& ops, std::function<void(int64_t bytes)> report);

  // The tensor that `host` of the source becomes as `dtype`; made up when it has no data. `name` is
  // for messages. It lives as long as the source and the buffers.
  StatusOr<Tensor> Place(const std::string& name, const Tensor& host, DType dtype);
  // Reads the tensors that stayed in their files.
  void ReadMapped();
  // What was copied or made up.
  std::vector<Buffer> TakeBuffers();

 private:
  Status Copy(const std::string& name, const Tensor& host, const Tensor& dst);

  WeightSource& source_;
  Ops& ops_;
  std::function<void(int64_t bytes)> report_;
  bool reads_in_place_;
  Buffer staging_;  // pinned, for uploads
  std::vector<Buffer> buffers_;
  std::vector<Tensor> mapped_;
  uint64_t num_random_ = 0;  // tensors made up so far, each from a seed of its own
};

}  // namespace kuiper
