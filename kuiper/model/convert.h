// Moving weights: piece by piece out of their source, and from one float type to another. Used by
// the loader and kuiper_pack.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "kuiper/base/dtype.h"
#include "kuiper/base/status.h"
#include "kuiper/model/weight_source.h"

namespace kuiper {

// dst[0, n) = src[0, n), rounded to nearest even; neither pointer need be aligned. False when a
// finite value became infinite (too large for FP16).
[[nodiscard]] bool ConvertFloats(void* dst, DType dst_dtype, const void* src, DType src_dtype,
                                 int64_t n);
// What to say then; `tensor` names it.
Status TooLargeFor(DType dtype, const std::string& tensor);

inline constexpr size_t kPieceBytes = size_t{4} << 20;
// Gives `bytes` of the source to `take` in pieces of about kPieceBytes, whole units of
// `unit_bytes`; asks for each piece while the one before is taken, and gives it back afterwards.
Status ForEachPiece(WeightSource& source, std::string_view bytes, size_t unit_bytes,
                    const std::function<Status(std::string_view piece)>& take);
// The same of floats in the type `from`, rounded to `to` on the way. TooLargeFor `tensor`.
Status ForEachConverted(WeightSource& source, std::string_view bytes, DType from, DType to,
                        const std::string& tensor,
                        const std::function<Status(std::string_view piece)>& take);

}  // namespace kuiper
