// KU_UNROLL unrolls the loop after it, whose bounds are constants up to 32. Only macros, so that
// headers inside a namespace can include this file.
#pragma once

#ifdef __clang__
#define KU_UNROLL _Pragma("unroll")
#else
#define KU_UNROLL _Pragma("GCC unroll 32")
#endif
