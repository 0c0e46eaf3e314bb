#include "kuiper/ops/arg_checker.h"

#include <string>

namespace kuiper {

void ArgChecker::Require(bool condition, const char* message) const {
  KU_CHECK(condition, std::string(op_) + ": " + message);
}

void ArgChecker::Expect(bool condition, const Tensor& t, const char* name) const {
  if (condition) return;
  std::string text = std::string(op_) + ": unexpected " + name + " " + DTypeName(t.dtype) + " [";
  for (int i = 0; i < t.rank; ++i) text += (i == 0 ? "" : ", ") + std::to_string(t.shape[i]);
  KU_CHECK(condition, text + "] on " + DeviceName(t.device));
}

void ArgChecker::Present(const Tensor& t, const char* name) const {
  Expect(t.rank > 0 && (!t.empty() || t.numel() == 0) && t.device == device_ &&
             (t.stride[t.rank - 1] == 1 || t.shape[t.rank - 1] <= 1),
         t, name);
}

void ArgChecker::Matrix(const Tensor& t, const char* name) const {
  Present(t, name);
  Expect(t.rank == 2 && IsFloat(t.dtype) && t.stride[0] >= t.shape[1], t, name);
}

void ArgChecker::Matrix(const Tensor& t, const char* name, int64_t rows, int64_t cols) const {
  Matrix(t, name);
  Expect(t.shape[0] == rows && t.shape[1] == cols, t, name);
}

void ArgChecker::Matrix(const Tensor& t, const char* name, const Tensor& like, int64_t rows,
                        int64_t cols) const {
  Matrix(t, name, rows, cols);
  Expect(t.dtype == like.dtype, t, name);
}

void ArgChecker::Vector(const Tensor& t, const char* name, DType dtype, int64_t n) const {
  Present(t, name);
  Expect(t.rank == 1 && t.dtype == dtype && t.shape[0] == n, t, name);
}

void ArgChecker::Weight(const Tensor& t, const char* name, int64_t n) const {
  Present(t, name);
  Expect(t.rank == 1 && IsFloat(t.dtype) && t.shape[0] == n, t, name);
}

}  // namespace kuiper
