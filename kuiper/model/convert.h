// Reads weights piece by piece from their source and converts them between float types. Used by the
// loader and kuiper_pack.
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
// Returns the error for that case; `tensor` is the name to report.
Status TooLargeFor(DType dtype, const std::string& tensor);

inline constexpr size_t kPieceBytes = size_t{4} << 20;
// Passes `bytes` of the source to `take` in pieces of about kPieceBytes, each a whole number of
// units of `unit_bytes`. Requests each piece while the previous one is processed, and releases it
// afterwards.
Status ForEachPiece(WeightSource& source, std::string_view bytes, size_t unit_bytes,
                    const std::function<Status(std::string_view piece)>& take);
// ForEachPiece for floats of type `from`, rounded to type `to` on the way. Returns TooLargeFor
// `tensor` if a value does not fit.
Status ForEachConverted(WeightSource& source, std::string_view bytes, DType from, DType to,
                        const std::string& tensor,
                        const std::function<Status(std::string_view piece)>& take);

}  // namespace kuiper
