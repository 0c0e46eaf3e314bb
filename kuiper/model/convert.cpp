#include "kuiper/model/convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kuiper/base/check.h"
#include "kuiper/base/half.h"

namespace kuiper {
namespace {

template <typename Dst, typename Src>
bool Convert(char* dst, const char* src, int64_t n) {
  bool fits = true;
  for (int64_t i = 0; i < n; ++i) {
    Src in;
    std::memcpy(&in, src + i * static_cast<int64_t>(sizeof(Src)), sizeof(Src));
    const float value = ToFloat(in);
    const Dst out = FromFloat<Dst>(value);
    std::memcpy(dst + i * static_cast<int64_t>(sizeof(Dst)), &out, sizeof(Dst));
    fits &= std::isfinite(ToFloat(out)) || !std::isfinite(value);
  }
  return fits;
}

template <typename Dst>
bool ConvertTo(char* dst, const char* src, DType src_dtype, int64_t n) {
  switch (src_dtype) {
    case DType::kF32:
      return Convert<Dst, float>(dst, src, n);
    case DType::kF16:
      return Convert<Dst, Half>(dst, src, n);
    case DType::kBF16:
      return Convert<Dst, BFloat16>(dst, src, n);
    default:
      KU_CHECK(false, "not a float type");
  }
  return false;
}

}  // namespace

bool ConvertFloats(void* dst, DType dst_dtype, const void* src, DType src_dtype, int64_t n) {
  char* out = static_cast<char*>(dst);
  const char* in = static_cast<const char*>(src);
  if (dst_dtype == src_dtype) {
    std::memcpy(out, in, static_cast<size_t>(n) * DTypeBytes(dst_dtype));
    return true;
  }
  switch (dst_dtype) {
    case DType::kF32:
      return ConvertTo<float>(out, in, src_dtype, n);
    case DType::kF16:
      return ConvertTo<Half>(out, in, src_dtype, n);
    case DType::kBF16:
      return ConvertTo<BFloat16>(out, in, src_dtype, n);
    default:
      KU_CHECK(false, "not a float type");
  }
  return false;
}

Status TooLargeFor(DType dtype, const std::string& tensor) {
  return Status(StatusCode::kModel, tensor + " has values too large for " + DTypeName(dtype),
                "use " + Param("dtype") + " bf16 or fp32");
}

Status ForEachPiece(WeightSource& source, std::string_view bytes, size_t unit_bytes,
                    const std::function<Status(std::string_view piece)>& take) {
  const size_t piece_bytes = std::max(unit_bytes, kPieceBytes / unit_bytes * unit_bytes);
  for (; !bytes.empty(); bytes.remove_prefix(std::min(piece_bytes, bytes.size()))) {
    const std::string_view piece = bytes.substr(0, piece_bytes);
    const std::string_view next = bytes.substr(piece.size(), piece_bytes);
    if (!next.empty()) source.WillNeed(next.data(), next.size());
    KU_RETURN_IF_ERROR(take(piece));
    source.DontNeed(piece.data(), piece.size());
  }
  return OkStatus();
}

Status ForEachConverted(WeightSource& source, std::string_view bytes, DType from, DType to,
                        const std::string& tensor,
                        const std::function<Status(std::string_view piece)>& take) {
  std::vector<char> converted;
  return ForEachPiece(source, bytes, DTypeBytes(from), [&](std::string_view piece) {
    const size_t count = piece.size() / DTypeBytes(from);
    converted.resize(count * DTypeBytes(to));
    if (!ConvertFloats(converted.data(), to, piece.data(), from, static_cast<int64_t>(count))) {
      return TooLargeFor(to, tensor);
    }
    return take(std::string_view(converted.data(), converted.size()));
  });
}

}  // namespace kuiper
