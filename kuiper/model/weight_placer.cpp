#include "kuiper/model/weight_placer.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <utility>

#include "kuiper/base/parallel.h"
#include "kuiper/base/text.h"
#include "kuiper/model/convert.h"
#include "kuiper/model/quantized/int8_rows.h"
#include "kuiper/model/quantized/made_up.h"

namespace kuiper {
namespace {

constexpr int64_t kMinThreadBytes = 1 << 20;  // a thread is worthwhile from this size

}  // namespace

WeightPlacer::WeightPlacer(WeightSource& source, Ops& ops, MappedWeights mapped, int num_threads,
                           std::function<void(int64_t bytes)> report)
    : source_(source),
      ops_(ops),
      report_(std::move(report)),
      reads_in_place_(ops.device().traits().reads_host_memory),
      mapped_use_(mapped),
      num_threads_(num_threads) {}

StatusOr<Tensor> WeightPlacer::Place(const std::string& name, const Tensor& host, DType dtype) {
  const bool aligned = reinterpret_cast<uintptr_t>(host.data) % DTypeBytes(host.dtype) == 0;
  if (reads_in_place_ && mapped_use_ != MappedWeights::kCopy && !host.empty() &&
      host.dtype == dtype && aligned) {
    mapped_.push_back(host);
    return host;
  }
  const size_t bytes = static_cast<size_t>(host.numel()) * DTypeBytes(dtype);
  KU_ASSIGN_OR_RETURN(Buffer buffer, ops_.device().AllocateWhole(bytes));
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
  char* out = static_cast<char*>(dst.data);
  const std::string_view bytes(static_cast<const char*>(host.data),
                               static_cast<size_t>(host.bytes()));
  return ForEachPiece(source_, bytes, src_bytes, [&](std::string_view piece) -> Status {
    const int64_t n = static_cast<int64_t>(piece.size() / src_bytes);
    const int64_t written = n * static_cast<int64_t>(dst_bytes);
    KU_ASSIGN_OR_RETURN(char* const target, HostMemoryFor(out, written));
    // Threads share the page faults, which take longer than the copy itself.
    std::atomic<bool> fits{true};
    const auto convert = [&](int64_t begin, int64_t end) {
      const char* from = piece.data() + begin * static_cast<int64_t>(src_bytes);
      char* const to = target + begin * static_cast<int64_t>(dst_bytes);
      if (!ConvertFloats(to, dst.dtype, from, host.dtype, end - begin)) fits = false;
    };
    const int64_t threads = std::min<int64_t>(num_threads_, written / kMinThreadBytes);
    ParallelRanges(n, static_cast<int>(threads), convert);
    if (!fits) {
      return TooLargeFor(dst.dtype, source_.files().path + ": tensor " + Quoted(name));
    }
    Deliver(out, written);
    out += written;
    report_(static_cast<int64_t>(piece.size()));
    return OkStatus();
  });
}

void WeightPlacer::Prepack(Linear* linear) {
  const auto is_mapped = [&](const Tensor& t) {
    const auto is_same = [&](const Tensor& mapped) { return mapped.data == t.data; };
    return std::any_of(mapped_.begin(), mapped_.end(), is_same);
  };
  for (int i = 0; i < linear->num_parts; ++i) {
    const WeightMatrix& w = linear->parts[i].weight;
    if (w.values.empty()) return;
    if (is_mapped(w.values) || is_mapped(w.scales) || is_mapped(w.zeros)) return;
  }
  ops_.Prepack(linear);
}

StatusOr<Tensor> WeightPlacer::Allocate(DType dtype, int64_t rows, int64_t columns) {
  const int64_t bytes = rows * columns * static_cast<int64_t>(DTypeBytes(dtype));
  KU_ASSIGN_OR_RETURN(Buffer buffer, ops_.device().AllocateWhole(static_cast<size_t>(bytes)));
  const Tensor tensor = buffer.As(dtype, {rows, columns});
  buffers_.push_back(std::move(buffer));
  return tensor;
}

StatusOr<char*> WeightPlacer::HostMemoryFor(char* dst, int64_t bytes) {
  if (reads_in_place_) return dst;
  if (staging_.bytes() < static_cast<size_t>(bytes)) {
    // One size for all pieces: in the worst case, 16-bit floats become FP32 and double in size.
    const size_t wanted = std::max(2 * kPieceBytes, static_cast<size_t>(bytes));
    KU_ASSIGN_OR_RETURN(staging_, ops_.device().AllocatePinned(wanted));
  }
  return static_cast<char*>(staging_.data());
}

void WeightPlacer::Deliver(char* dst, int64_t bytes) {
  if (reads_in_place_) return;
  ops_.device().Upload(Tensor::Dense(dst, DType::kU8, {bytes}, ops_.device().id()),
                       Tensor::Dense(staging_.data(), DType::kU8, {bytes}));
  ops_.device().Sync();  // the staging memory is about to be reused
}

StatusOr<WeightMatrix> WeightPlacer::PlacePacked(const PackedMatrix& packed) {
  WeightMatrix matrix;
  matrix.format = packed.format;
  KU_ASSIGN_OR_RETURN(matrix.values,
                      PlaceTensor(packed.values, packed.format, PackedPart::kValues));
  KU_ASSIGN_OR_RETURN(matrix.scales,
                      PlaceTensor(packed.scales, packed.format, PackedPart::kScales));
  KU_ASSIGN_OR_RETURN(matrix.zeros, PlaceTensor(packed.zeros, packed.format, PackedPart::kZeros));
  return matrix;
}

StatusOr<Tensor> WeightPlacer::PlaceTensor(const PackedTensor& tensor, const WeightFormat& format,
                                           PackedPart part) {
  const std::string_view bytes = tensor.stored.bytes;
  if (tensor.verify != nullptr) KU_RETURN_IF_ERROR(tensor.verify(tensor, {0, bytes}));
  if (tensor.becomes.rank == 0) return Tensor();
  Tensor host = tensor.becomes;
  if (!bytes.empty() && tensor.unpack == nullptr) {
    host.data = const_cast<char*>(bytes.data());  // kernels never write to weights
    return Place(tensor.stored.name, host, host.dtype);
  }
  KU_ASSIGN_OR_RETURN(const Tensor placed, Allocate(host.dtype, host.shape[0], host.shape[1]));
  KU_RETURN_IF_ERROR(bytes.empty() ? MakeUp(format, part, placed) : Unpack(tensor, placed));
  return placed;
}

Status WeightPlacer::Unpack(const PackedTensor& tensor, const Tensor& dst) {
  char* out = static_cast<char*>(dst.data);
  KU_ASSIGN_OR_RETURN(char* const target, HostMemoryFor(out, dst.bytes()));
  int64_t first = 0;
  KU_RETURN_IF_ERROR(ForEachPiece(source_, tensor.stored.bytes,
                                  static_cast<size_t>(tensor.unit_bytes),
                                  [&](std::string_view piece) {
                                    const auto bytes = static_cast<int64_t>(piece.size());
                                    tensor.unpack(tensor, {first, piece}, target);
                                    first += bytes / tensor.unit_bytes;
                                    report_(bytes);
                                    return OkStatus();
                                  }));
  Deliver(out, dst.bytes());
  return OkStatus();
}

Status WeightPlacer::MakeUp(const WeightFormat& format, PackedPart part, const Tensor& dst) {
  const auto make_up = part == PackedPart::kValues   ? FillRandomCodes
                       : part == PackedPart::kScales ? FillRandomScales
                                                     : FillRandomZeros;
  std::mt19937_64 random(num_random_++);
  char* out = static_cast<char*>(dst.data);
  char* const end = out + dst.bytes();
  for (int64_t bytes = 0; out < end; out += bytes) {
    bytes = std::min<int64_t>(kPieceBytes, end - out);
    KU_ASSIGN_OR_RETURN(char* const target, HostMemoryFor(out, bytes));
    make_up(format, random, target, bytes);
    Deliver(out, bytes);
  }
  return OkStatus();
}

StatusOr<WeightMatrix> WeightPlacer::PlaceAsInt8(const std::string& name, const Tensor& host,
                                                 const WeightFormat& format) {
  const int64_t rows = host.shape[0], in = host.shape[1], groups = format.column_groups(in);
  WeightMatrix matrix;
  matrix.format = format;
  KU_ASSIGN_OR_RETURN(matrix.values, Allocate(DType::kU8, rows, in));
  KU_ASSIGN_OR_RETURN(matrix.scales, Allocate(format.scale_type, rows, groups));
  if (host.empty()) {
    KU_RETURN_IF_ERROR(MakeUp(format, PackedPart::kValues, matrix.values));
    KU_RETURN_IF_ERROR(MakeUp(format, PackedPart::kScales, matrix.scales));
    return matrix;
  }
  char* codes = static_cast<char*>(matrix.values.data);
  char* scales = static_cast<char*>(matrix.scales.data);
  const size_t row_bytes = static_cast<size_t>(in) * DTypeBytes(host.dtype);
  const std::string_view bytes(static_cast<const char*>(host.data),
                               static_cast<size_t>(rows) * row_bytes);
  std::vector<float> piece_scales;
  const Status quantised =
      ForEachPiece(source_, bytes, row_bytes, [&](std::string_view piece) -> Status {
        const int64_t n = static_cast<int64_t>(piece.size() / row_bytes);
        piece_scales.resize(static_cast<size_t>(n * groups));
        KU_ASSIGN_OR_RETURN(char* const target, HostMemoryFor(codes, n * in));
        if (!QuantizeRows(piece.data(), host.dtype, n, in, target, piece_scales.data())) {
          return Status(StatusCode::kModel, source_.files().path + ": tensor " + Quoted(name) +
                                                " has values that are not finite");
        }
        Deliver(codes, n * in);
        const int64_t scale_bytes = n * groups * static_cast<int64_t>(sizeof(float));
        KU_ASSIGN_OR_RETURN(char* const scale_target, HostMemoryFor(scales, scale_bytes));
        std::memcpy(scale_target, piece_scales.data(), static_cast<size_t>(scale_bytes));
        Deliver(scales, scale_bytes);
        codes += n * in;
        scales += scale_bytes;
        report_(static_cast<int64_t>(piece.size()));
        return OkStatus();
      });
  KU_RETURN_IF_ERROR(quantised);
  return matrix;
}

// Reads in file order, so that a cold file is read sequentially and the first step does not wait
// for the disk.
void WeightPlacer::ReadMapped() {
  if (mapped_use_ == MappedWeights::kLeave) return;
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
  for (size_t i = 0; i < chunks.size(); ++i) {
    if (i + kAhead < chunks.size()) {
      source_.WillNeed(chunks[i + kAhead].first, chunks[i + kAhead].second);
    }
    source_.Read(chunks[i].first, chunks[i].second);
    report_(chunks[i].second);
  }
}

std::vector<Buffer> WeightPlacer::TakeBuffers() {
  return std::move(buffers_);
}

}  // namespace kuiper
