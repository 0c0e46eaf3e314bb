// What really ran, as opposed to what was asked for: where, in which types, with which kernels, and
// how its steps were launched. Engine::run_facts gives it to programs.
#pragma once

#include <cstdint>
#include <string>

#include "kuiper/base/dtype.h"
#include "kuiper/ops/kv_format.h"
#include "kuiper/ops/ops_options.h"

namespace kuiper {

struct RunFacts {
  std::string device;  // "cpu (AVX2, 2 threads)"
  DType dtype = DType::kF32;
  KvFormat kv_format;
  bool paged = false;
  int page_size = 0;  // tokens; contiguous: the context length
  AttentionKind attention = AttentionKind::kFlash1;
  // Since the engine was created. A recorded step is computed while it is recorded.
  int64_t steps_recorded = 0, steps_replayed = 0, steps_eager = 0;
  // By the vision tower, since then: pictures, and the time they took.
  int64_t pictures_encoded = 0;
  double encode_ms = 0;
};

}  // namespace kuiper
