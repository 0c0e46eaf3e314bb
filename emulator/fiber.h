// A suspended flow of control with its own stack: one per CUDA thread of the emulated device. Only
// the scheduler (machine.cpp) uses it; it does not depend on warps or blocks.
#pragma once

#include <cstddef>

#if !defined(KUIPER_SIMT_UCONTEXT) && !defined(__x86_64__) && !defined(__aarch64__)
#define KUIPER_SIMT_UCONTEXT 1  // portable, but each switch is a system call
#endif
#if defined(KUIPER_SIMT_UCONTEXT)
#include <ucontext.h>
#endif

namespace kuiper::simt {

// A default-constructed Fiber represents the OS thread that runs it.
class Fiber {
 public:
  using Entry = void (*)();

  Fiber() = default;
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Gives the fiber a stack; `entry` runs at the first switch to it and must never return.
  void Prepare(Entry entry, size_t stack_bytes);

  // Suspends `from`, which is the running fiber, and resumes `to`.
  static void Switch(Fiber& from, Fiber& to);

 private:
  static void Main();

  void* stack_ = nullptr;  // lowest usable address
  size_t stack_bytes_ = 0;
  void* mapping_ = nullptr;  // null: the stack belongs to an OS thread
  size_t mapping_bytes_ = 0;
  Entry entry_ = nullptr;
#if defined(KUIPER_SIMT_UCONTEXT)
  ucontext_t context_{};
#else
  void* stack_pointer_ = nullptr;
#endif
  [[maybe_unused]] void* asan_fake_stack_ = nullptr;
  [[maybe_unused]] void* tsan_fiber_ = nullptr;
};

}  // namespace kuiper::simt
