// Converts run-time types to template arguments: VisitFloat for element types, VisitKv for KV
// views. Included by the backends; no other code unpacks a KvView.
#pragma once

#include <utility>

#include "kuiper/base/check.h"
#include "kuiper/base/dtype.h"
#include "kuiper/base/float8.h"
#include "kuiper/base/half.h"
#include "kuiper/ops/kv_view.h"

namespace kuiper {

// Calls f(T{}) with the C++ type of a floating point dtype.
template <typename F>
void VisitFloat(DType dtype, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return std::forward<F>(f)(float{});
    case DType::kF16:
      return std::forward<F>(f)(Half{});
    case DType::kBF16:
      return std::forward<F>(f)(BFloat16{});
    default:
      KU_CHECK(false, DTypeName(dtype));
  }
}

// Calls f(view) with the typed view.
template <typename F>
void VisitKv(const KvView& kv, F&& f) {
  const auto visit = [&](auto zero) {
    using T = decltype(zero);
    if (kv.kind == KvView::Kind::kPaged) {
      f(kv.Paged<T>());
    } else {
      f(kv.Contiguous<T>());
    }
  };
  switch (kv.format.kind) {
    case KvFormat::Kind::kF32:
      return visit(float{});
    case KvFormat::Kind::kF16:
      return visit(Half{});
    case KvFormat::Kind::kBF16:
      return visit(BFloat16{});
    case KvFormat::Kind::kInt8:
      return visit(int8_t{});
    case KvFormat::Kind::kF8E4M3:
      return visit(Float8E4M3{});
    case KvFormat::Kind::kF8E5M2:
      return visit(Float8E5M2{});
  }
}

}  // namespace kuiper
