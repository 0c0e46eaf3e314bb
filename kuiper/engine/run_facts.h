// What was actually used, as opposed to requested: device, types, kernels, and how steps were
// launched. Programs get it from Engine::run_facts.
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
  // Since the engine was created. A step is also computed when its graph is captured.
  int64_t steps_recorded = 0, steps_replayed = 0, steps_eager = 0;
  // Pictures encoded since then, and the time this took.
  int64_t pictures_encoded = 0;
  double encode_ms = 0;
};

}  // namespace kuiper
