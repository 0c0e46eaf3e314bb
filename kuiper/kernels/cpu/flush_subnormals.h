// Makes the calling thread treat subnormal FP32 operands and results as zero while in scope, as
// vdpbf16ps always does, so that other code can give the same bits.
#pragma once

#include <cstdint>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace kuiper::cpu {

class ScopedFlushSubnormals {
 public:
  explicit ScopedFlushSubnormals(bool enable) : enable_(enable) {
    if (!enable_) return;
    saved_ = Get();
    Set(saved_ | kFlush);
  }
  ~ScopedFlushSubnormals() {
    if (enable_) Set(saved_);
  }
  ScopedFlushSubnormals(const ScopedFlushSubnormals&) = delete;
  ScopedFlushSubnormals& operator=(const ScopedFlushSubnormals&) = delete;

 private:
#if defined(__SSE__)
  static constexpr uint64_t kFlush = 0x8040;  // MXCSR: FTZ | DAZ
  static uint64_t Get() {
    return _mm_getcsr();
  }
  static void Set(uint64_t state) {
    _mm_setcsr(static_cast<uint32_t>(state));
  }
#elif defined(__aarch64__)
  static constexpr uint64_t kFlush = uint64_t{1} << 24;  // FPCR.FZ: operands and results
  static uint64_t Get() {
    uint64_t state;
    asm volatile("mrs %0, fpcr" : "=r"(state));
    return state;
  }
  static void Set(uint64_t state) {
    asm volatile("msr fpcr, %0" : : "r"(state));
  }
#else
  static constexpr uint64_t kFlush = 0;
  static uint64_t Get() {
    return 0;
  }
  static void Set(uint64_t) {}
#endif

  bool enable_;
  uint64_t saved_ = 0;
};

}  // namespace kuiper::cpu
