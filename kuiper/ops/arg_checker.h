// Checks the arguments of one op; every failure names the op and the argument and ends the process.
// Used by the Check functions of the argument structs (op_args.h). It reads only shapes and dtypes,
// never device memory, so checks also work while a step is captured.
#pragma once

#include <cstdint>
#include <string>

#include "kuiper/base/tensor.h"

namespace kuiper {

class ArgChecker {
 public:
  ArgChecker(const char* op, Device device) : op_(op), device_(device) {}

  void Require(bool condition, const char* message) const;
  // Checks that the tensor is on the device, contiguous along the last dimension, and not null
  // unless it has no elements.
  void Present(const Tensor& t, const char* name) const;
  // A matrix of any float type.
  void Matrix(const Tensor& t, const char* name) const;
  void Matrix(const Tensor& t, const char* name, int64_t rows, int64_t cols) const;
  // A matrix of the activations' type.
  void Matrix(const Tensor& t, const char* name, const Tensor& like, int64_t rows,
              int64_t cols) const;
  void Vector(const Tensor& t, const char* name, DType dtype, int64_t n) const;
  // A vector of any float type.
  void Weight(const Tensor& t, const char* name, int64_t n) const;

 private:
  void Expect(bool condition, const Tensor& t, const char* name) const;

  const char* op_;
  Device device_;
};

}  // namespace kuiper
