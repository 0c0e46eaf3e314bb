// Helpers for the tests of Apply.
#pragma once

#include <vector>

#include "ops_test_util.h"

namespace kuiper::test {

struct ApplyCall {
  Epilogue epilogue = Epilogue::kStore;
  int num_decode_rows = ApplyArgs::kAllRows;
  DType out_type = DType::kF32;
  int gap = 0;                     // elements between rows of x
  std::vector<float> before = {};  // output contents before the call, [tokens, columns]; empty: NaN
};

// Runs a prepared layer on x [tokens, w.in] and returns [tokens, OutputColumns].
inline std::vector<float> RunPrepared(Ops& ops, const Linear& w, const std::vector<float>& x,
                                      const ApplyCall& call) {
  const int tokens = static_cast<int>(x.size()) / w.in;
  const DType activation = ops.ActivationType(w.format().numeric_type());
  const Matrix mx(ops, activation, tokens, w.in, x, w.in + call.gap);
  const int columns = OutputColumns(w, call.epilogue), stride = columns + 8;
  const Matrix out(ops, call.out_type, tokens, columns,
                   call.before.empty() ? std::vector<float>(tokens * columns, kNaN) : call.before,
                   stride);
  KU_CHECK(ops.Prepare(w, call.epilogue, call.out_type, stride).ok());
  ops.Run(ApplyArgs{.out = out.tensor(),
                    .x = mx.tensor(),
                    .linear = w,
                    .epilogue = call.epilogue,
                    .num_decode_rows = call.num_decode_rows});
  return out.Get();
}

}  // namespace kuiper::test
