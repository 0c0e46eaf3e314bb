// Hints of the emulated device for the sanitizers. All functions are empty in an ordinary build.
//
// A ThreadSanitizer build compiles the sources of this folder without -fsanitize=thread and with
// KUIPER_SIMT_TSAN. All threads of a kernel share the scheduler's bookkeeping, which is not to be
// checked.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define KU_SIMT_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__) || defined(KUIPER_SIMT_TSAN)
#define KU_SIMT_TSAN 1
#endif
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KU_SIMT_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define KU_SIMT_TSAN 1
#endif
#endif

#if defined(KU_SIMT_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(KU_SIMT_TSAN)
#include <sanitizer/tsan_interface.h>
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
void __tsan_read_range(void* address, unsigned long bytes);   // NOLINT(google-runtime-int)
void __tsan_write_range(void* address, unsigned long bytes);  // NOLINT(google-runtime-int)
}
#endif

namespace kuiper::simt {

#if defined(KU_SIMT_ASAN)
inline constexpr bool kAsan = true;
#else
inline constexpr bool kAsan = false;
#endif
#if defined(KU_SIMT_TSAN)
inline constexpr bool kTsan = true;
#else
inline constexpr bool kTsan = false;
#endif

// No code may access these bytes until they are unpoisoned.
inline void Poison([[maybe_unused]] const void* p, [[maybe_unused]] size_t bytes) {
#if defined(KU_SIMT_ASAN)
  __asan_poison_memory_region(p, bytes);
#endif
}
inline void Unpoison([[maybe_unused]] const void* p, [[maybe_unused]] size_t bytes) {
#if defined(KU_SIMT_ASAN)
  __asan_unpoison_memory_region(p, bytes);
#endif
}

// Reports poisoned bytes in the range, with the stack of the caller.
inline void CheckReadable([[maybe_unused]] const void* p, [[maybe_unused]] size_t bytes) {
#if defined(KU_SIMT_ASAN)
  const void* const bad = __asan_region_is_poisoned(const_cast<void*>(p), bytes);
  if (bad != nullptr) static_cast<void>(*static_cast<const volatile char*>(bad));
#endif
}

// Everything before Release(token) happens before what follows a later Acquire(token).
inline void Acquire([[maybe_unused]] void* token) {
#if defined(KU_SIMT_TSAN)
  __tsan_acquire(token);
#endif
}
inline void Release([[maybe_unused]] void* token) {
#if defined(KU_SIMT_TSAN)
  __tsan_release(token);
#endif
}

// Reports accesses that uninstrumented code makes on behalf of the running CUDA thread.
inline void NoteRead([[maybe_unused]] const void* p, [[maybe_unused]] size_t bytes) {
#if defined(KU_SIMT_TSAN)
  __tsan_read_range(const_cast<void*>(p), bytes);
#endif
}
inline void NoteWrite([[maybe_unused]] void* p, [[maybe_unused]] size_t bytes) {
#if defined(KU_SIMT_TSAN)
  __tsan_write_range(p, bytes);
#endif
}

// While an object exists, accesses of the running thread are not checked for races.
class IgnoreAccesses {
 public:
  IgnoreAccesses() {
#if defined(KU_SIMT_TSAN)
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
  }
  ~IgnoreAccesses() {
#if defined(KU_SIMT_TSAN)
    AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
  }
  IgnoreAccesses(const IgnoreAccesses&) = delete;
  IgnoreAccesses& operator=(const IgnoreAccesses&) = delete;
};

}  // namespace kuiper::simt
