#include "emulator/fiber.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "emulator/sanitizer.h"

#if !defined(KUIPER_SIMT_UCONTEXT)
// Pushes the callee-saved registers, stores the stack pointer to *save and continues on `load`.
extern "C" void kuiper_simt_switch_stack(void** save, void* load);
#if defined(__x86_64__)
asm(R"(
.text
.globl kuiper_simt_switch_stack
.hidden kuiper_simt_switch_stack
.type kuiper_simt_switch_stack,@function
kuiper_simt_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size kuiper_simt_switch_stack,.-kuiper_simt_switch_stack
)");
#else
asm(R"(
.text
.globl kuiper_simt_switch_stack
.hidden kuiper_simt_switch_stack
.type kuiper_simt_switch_stack,%function
kuiper_simt_switch_stack:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size kuiper_simt_switch_stack,.-kuiper_simt_switch_stack
)");
#endif
#endif

namespace kuiper::simt {
namespace {

#if defined(KUIPER_SIMT_UCONTEXT)
#elif defined(__x86_64__)
constexpr int kFrameWords = 8;  // six registers, the return address, one word of alignment
constexpr int kReturnWord = 6;
#else
constexpr int kFrameWords = 20;
constexpr int kReturnWord = 11;  // x30
#endif

Fiber* running = nullptr;  // the fiber most recently switched to

}  // namespace

void Fiber::Main() {
#if defined(KU_SIMT_ASAN)
  __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
  running->entry_();
  std::abort();
}

Fiber::~Fiber() {
  if (mapping_ == nullptr) return;
#if defined(KU_SIMT_TSAN)
  __tsan_destroy_fiber(tsan_fiber_);
#endif
  munmap(mapping_, mapping_bytes_);
}

void Fiber::Prepare(Entry entry, size_t stack_bytes) {
  // An inaccessible page below the stack turns an overflow into a fault.
  const size_t guard = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  mapping_bytes_ = stack_bytes + guard;
  mapping_ = mmap(nullptr, mapping_bytes_, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping_ == MAP_FAILED || mprotect(mapping_, guard, PROT_NONE) != 0) {
    std::perror("simt: no memory for the stack of a CUDA thread");
    std::abort();
  }
  stack_ = static_cast<char*>(mapping_) + guard;
  stack_bytes_ = stack_bytes;
  entry_ = entry;
#if defined(KU_SIMT_TSAN)
  tsan_fiber_ = __tsan_create_fiber(0);
#endif
  // With equal page offsets the active frames of all fibers would compete for the same few cache
  // sets.
  static unsigned colour = 0;
  char* const top = static_cast<char*>(stack_) + stack_bytes_ - size_t{192} * (colour++ % 21);
#if defined(KUIPER_SIMT_UCONTEXT)
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = static_cast<size_t>(top - static_cast<char*>(stack_));
  context_.uc_link = nullptr;
  makecontext(&context_, &Fiber::Main, 0);
#else
  auto** frame = reinterpret_cast<void**>(top) - kFrameWords;
  frame[kReturnWord] = reinterpret_cast<void*>(&Fiber::Main);  // all other words are zero
  stack_pointer_ = frame;
#endif
}

void Fiber::Switch(Fiber& from, Fiber& to) {
  running = &to;
#if defined(KU_SIMT_ASAN)
  if (from.stack_ == nullptr) {  // an OS thread: query the bounds of its stack
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &from.stack_, &from.stack_bytes_);
    pthread_attr_destroy(&attributes);
  }
  __sanitizer_start_switch_fiber(&from.asan_fake_stack_, to.stack_, to.stack_bytes_);
#endif
#if defined(KU_SIMT_TSAN)
  if (from.tsan_fiber_ == nullptr) from.tsan_fiber_ = __tsan_get_current_fiber();
  // A switch does not synchronise, so CUDA threads stay concurrent for TSan.
  __tsan_switch_to_fiber(to.tsan_fiber_, __tsan_switch_to_fiber_no_sync);
#endif
#if defined(KUIPER_SIMT_UCONTEXT)
  swapcontext(&from.context_, &to.context_);
#else
  kuiper_simt_switch_stack(&from.stack_pointer_, to.stack_pointer_);
#endif
#if defined(KU_SIMT_ASAN)
  __sanitizer_finish_switch_fiber(from.asan_fake_stack_, nullptr, nullptr);
#endif
}

}  // namespace kuiper::simt
