// Unrolls the loop behind it, whose bounds are constants up to 32. Macros only, so headers
// inside a namespace may include it.
#pragma once

#ifdef __clang__
#define KU_UNROLL _Pragma("unroll")
#else
#define KU_UNROLL _Pragma("GCC unroll 32")
#endif
