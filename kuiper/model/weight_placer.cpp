#include "kuiper/model/weight_placer.h"

#include <algorithm>
#include <utility>

#include "kuiper/base/text.h"
#include "kuiper/model/convert.h"

namespace kuiper {

WeightPlacer::WeightPlacer(WeightSource& source, Ops& ops,
                           std::function<void(int64_t bytes)> report)
    : source_(source),
      ops_(ops),
      report_(std::move(report)),
      reads_in_place_(ops.device().traits().reads_host_memory) {}

StatusOr<Tensor> WeightPlacer::Place(const std::string& name, const Tensor& host, DType dtype) {
  const bool aligned = reinterpret_cast<uintptr_t>(host.data) % DTypeBytes(host.dtype) == 0;
  if (reads_in_place_ && !host.empty() && host.dtype == dtype && aligned) {
    mapped_.push_back(host);
    return host;
  }
  const size_t bytes = static_cast<size_t>(host.numel()) * DTypeBytes(dtype);
  KU_ASSIGN_OR_RETURN(Buffer buffer, ops_.device().Allocate(bytes));
  const Tensor placed = host.rank == 1 ? buffer.As(dtype, {host.shape[0]})
                                       : buffer.As(dtype, {host.shape[0], host.shape[1]});
  if (host.empty()) {
    ops_.Run(FillRandomArgs{.out = placed, .seed = num_random_++});
  } else {
    KU_RETURN_IF_ERROR(Copy(name, host, placed));
  }
  buffers_.push_back(std::move(buffer));
  return placed;
}

Status WeightPlacer::Copy(const std::string& name, const Tensor& host, const Tensor& dst) {
  const size_t src_bytes = DTypeBytes(host.dtype), dst_bytes = DTypeBytes(dst.dtype);
  if (!reads_in_place_ && staging_.empty()) {
    // Halves become FP32 in the worst case.
    KU_ASSIGN_OR_RETURN(staging_, ops_.device().AllocatePinned(2 * kPieceBytes));
  }
  char* out = static_cast<char*>(dst.data);
  const std::string_view bytes(static_cast<const char*>(host.data),
                               static_cast<size_t>(host.bytes()));
  return ForEachPiece(source_, bytes, [&](std::string_view piece) -> Status {
    const int64_t n = static_cast<int64_t>(piece.size() / src_bytes);
    void* target = reads_in_place_ ? out : staging_.data();
    if (!ConvertFloats(target, dst.dtype, piece.data(), host.dtype, n)) {
      return TooLargeFor(dst.dtype, source_.files().path + ": tensor " + Quoted(name));
    }
    if (!reads_in_place_) {
      ops_.device().Upload(Tensor::Dense(out, dst.dtype, {n}, dst.device),
                           Tensor::Dense(target, dst.dtype, {n}));
      ops_.device().Sync();  // the staging memory is used again
    }
    out += n * static_cast<int64_t>(dst_bytes);
    report_(static_cast<int64_t>(piece.size()));
    return OkStatus();
  });
}

// In file order, so that a cold file is read sequentially and the first step does not wait for the
// disk.
void WeightPlacer::ReadMapped() {
  constexpr int64_t kChunk = int64_t{8} << 20;
  std::vector<std::pair<const char*, int64_t>> chunks;
  for (const Tensor& t : mapped_) {
    const char* data = static_cast<const char*>(t.data);
    for (int64_t i = 0; i < t.bytes(); i += kChunk) {
      chunks.emplace_back(data + i, std::min(kChunk, t.bytes() - i));
    }
  }
  std::sort(chunks.begin(), chunks.end());
  constexpr size_t kAhead = 4;
  constexpr int64_t kPageBytes = 4096;
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (i + kAhead < chunks.size()) {
      source_.WillNeed(chunks[i + kAhead].first, chunks[i + kAhead].second);
    }
    for (int64_t byte = 0; byte < chunks[i].second; byte += kPageBytes) {
      (void)*static_cast<const volatile char*>(chunks[i].first + byte);
    }
    report_(chunks[i].second);
  }
}

std::vector<Buffer> WeightPlacer::TakeBuffers() {
  return std::move(buffers_);
}

}  // namespace kuiper
