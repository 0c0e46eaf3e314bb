#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "emulator/half.h"
#include "emulator/intrinsics.h"
#include "emulator/ptx_context.h"

// Arithmetic, logic, comparisons. An opcode is known only with exactly the modifiers listed here.

namespace kuiper::simt::ptx {
namespace {

// ---- comparisons ------------------------------------------------------------------------------

// Returns one bit per byte that is 1.
uint32_t Pack(const uint8_t* flags) {
  uint32_t bits = 0;
  for (int n = 0; n < kLanes; n += 8) {
    uint64_t eight;
    std::memcpy(&eight, flags + n, sizeof eight);
    bits |= static_cast<uint32_t>(eight * 0x0102040810204080u >> 56) << n;
  }
  return bits;
}

template <typename T, typename F>
Form Compare(F) {
  const Function run = [](Context& c, const Instruction& i) {
    const Lane<T>* const a = c.At<Lane<T>>(i.s[0]);
    const Lane<T>* const b = c.At<Lane<T>>(i.s[1]);
    uint8_t flags[kLanes];
    for (int l = 0; l < kLanes; ++l) flags[l] = F{}(Read<T>(a[l]), Read<T>(b[l]));
    StorePredicate(c, i.d[0], Pack(flags));
  };
  return {{'P', ',', Letter<T>(false), ',', Letter<T>(false)}, run};
}

// Comparisons with NaN are false; those whose name ends in u are true.
template <typename T>
void AddComparisons(FormTable& table, const std::string& type) {
  const auto add = [&](const char* name, Form form) {
    table["setp." + std::string(name) + "." + type].push_back(std::move(form));
  };
  add("eq", Compare<T>([](T a, T b) { return a == b; }));
  add("ne", Compare<T>([](T a, T b) { return a < b || b < a; }));
  add("lt", Compare<T>([](T a, T b) { return a < b; }));
  add("le", Compare<T>([](T a, T b) { return a <= b; }));
  add("gt", Compare<T>([](T a, T b) { return b < a; }));
  add("ge", Compare<T>([](T a, T b) { return b <= a; }));
  if constexpr (std::is_floating_point_v<T>) {
    add("equ", Compare<T>([](T a, T b) { return !(a < b || b < a); }));
    add("neu", Compare<T>([](T a, T b) { return a != b; }));
    add("ltu", Compare<T>([](T a, T b) { return !(b <= a); }));
    add("leu", Compare<T>([](T a, T b) { return !(b < a); }));
    add("gtu", Compare<T>([](T a, T b) { return !(a <= b); }));
    add("geu", Compare<T>([](T a, T b) { return !(a < b); }));
  }
}

template <typename F>
Form OfPredicates(F) {
  const Function run = [](Context& c, const Instruction& i) {
    StorePredicate(c, i.d[0], F{}(*c.At<uint32_t>(i.s[0]), *c.At<uint32_t>(i.s[1])));
  };
  return {"P,p,p", run};
}

void AddPredicates(FormTable& table) {
  table["and.pred"] = {OfPredicates([](uint32_t a, uint32_t b) { return a & b; })};
  table["or.pred"] = {OfPredicates([](uint32_t a, uint32_t b) { return a | b; })};
  table["xor.pred"] = {OfPredicates([](uint32_t a, uint32_t b) { return a ^ b; })};
  table["not.pred"] = {{"P,p", [](Context& c, const Instruction& i) {
                          StorePredicate(c, i.d[0], ~*c.At<uint32_t>(i.s[0]));
                        }}};
}

// ---- integers ---------------------------------------------------------------------------------

// The result of a division by zero is unspecified; devices return all ones.
template <typename T>
T Divide(T a, T b) {
  using U = std::make_unsigned_t<T>;
  if (b == 0) return static_cast<T>(-1);
  if (std::is_signed_v<T> && b == static_cast<T>(-1))
    return static_cast<T>(U{0} - static_cast<U>(a));
  return static_cast<T>(a / b);
}
template <typename T>
T Remainder(T a, T b) {
  if (b == 0) return a;
  if (std::is_signed_v<T> && b == static_cast<T>(-1)) return 0;
  return static_cast<T>(a % b);
}

// Bitwise operations: the type is b32, or s32 and u32 as well.
template <typename U>
void AddBits(FormTable& table, const std::string& type) {
  const std::string dot = "." + type;
  table["and" + dot] = {Binary<U, U, U>([](U a, U b) { return static_cast<U>(a & b); })};
  table["or" + dot] = {Binary<U, U, U>([](U a, U b) { return static_cast<U>(a | b); })};
  table["xor" + dot] = {Binary<U, U, U>([](U a, U b) { return static_cast<U>(a ^ b); })};
  table["not" + dot] = {Unary<U, U>([](U a) { return static_cast<U>(~a); })};
  table["shl" + dot] = {Binary<U, U, uint32_t>(
      [](U a, uint32_t n) { return static_cast<U>(n >= 8 * sizeof(U) ? 0 : a << n); })};
}

template <typename T>
void AddInteger(FormTable& table, const std::string& type) {
  using U = std::make_unsigned_t<T>;
  const std::string dot = "." + type;
  table["add" + dot] = {Binary<U, U, U>([](U a, U b) { return static_cast<U>(a + b); })};
  table["sub" + dot] = {Binary<U, U, U>([](U a, U b) { return static_cast<U>(a - b); })};
  table["mul.lo" + dot] = {Binary<U, U, U>([](U a, U b) { return static_cast<U>(1u * a * b); })};
  table["mad.lo" + dot] = {
      Ternary<U>([](U a, U b, U c) { return static_cast<U>(1u * a * b + c); })};
  table["div" + dot] = {Binary<T, T, T>([](T a, T b) { return Divide(a, b); })};
  table["rem" + dot] = {Binary<T, T, T>([](T a, T b) { return Remainder(a, b); })};
  table["min" + dot] = {Binary<T, T, T>([](T a, T b) { return a < b ? a : b; })};
  table["max" + dot] = {Binary<T, T, T>([](T a, T b) { return a < b ? b : a; })};
  if (std::is_signed_v<T>)
    table["neg" + dot] = {Unary<U, U>([](U a) { return static_cast<U>(U{0} - a); })};
  table["shr" + dot] = {Binary<T, T, uint32_t>([](T a, uint32_t n) {
    return static_cast<T>(n >= 8 * sizeof(T) ? (a < 0 ? -1 : 0) : a >> n);
  })};
}

void AddProducts(FormTable& table) {
  table["mul.wide.s32"] = {
      Binary<int64_t, int32_t, int32_t>([](int32_t a, int32_t b) { return int64_t{a} * b; })};
  table["mul.wide.u32"] = {
      Binary<uint64_t, uint32_t, uint32_t>([](uint32_t a, uint32_t b) { return uint64_t{a} * b; })};
  table["mul.wide.u16"] = {
      Binary<uint32_t, uint16_t, uint16_t>([](uint16_t a, uint16_t b) { return uint32_t{a} * b; })};
  table["mul.hi.s32"] = {Binary<int32_t, int32_t, int32_t>(
      [](int32_t a, int32_t b) { return static_cast<int32_t>(int64_t{a} * b >> 32); })};
  table["mul.hi.u32"] = {Binary<uint32_t, uint32_t, uint32_t>(
      [](uint32_t a, uint32_t b) { return static_cast<uint32_t>(uint64_t{a} * b >> 32); })};
}

uint32_t Reversed(uint32_t a) {
  uint32_t reversed = 0;
  for (int n = 0; n < 32; ++n) reversed |= (a >> n & 1) << (31 - n);
  return reversed;
}

// Returns b with `bits` bits of a inserted at bit `first`.
uint64_t Inserted(uint64_t a, uint64_t b, uint32_t first, uint32_t bits) {
  first &= 0xff;
  bits = std::min(bits & 0xff, 64u);
  if (first >= 64) return b;
  const uint64_t ones = bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  return (b & ~(ones << first)) | ((a & ones) << first);
}

void AddBitCounts(FormTable& table) {
  using U = uint32_t;
  table["popc.b32"] = {Unary<U, U>([](U a) { return static_cast<U>(std::popcount(a)); })};
  table["brev.b32"] = {Unary<U, U>([](U a) { return Reversed(a); })};
  table["clz.b32"] = {Unary<U, U>([](U a) { return static_cast<U>(std::countl_zero(a)); })};
  table["bfind.shiftamt.u32"] = {
      Unary<U, U>([](U a) { return a == 0 ? ~U{0} : static_cast<U>(std::countl_zero(a)); })};
  table["prmt.b32"] = {Ternary<U>([](U a, U b, U c) { return dialect::__byte_perm(a, b, c); })};
  table["bfi.b64"] = {
      {"L,l,l,w,w", [](Context& c, const Instruction& i) {
         const uint64_t* const a = c.At<uint64_t>(i.s[0]);
         const uint64_t* const b = c.At<uint64_t>(i.s[1]);
         const uint32_t* const first = c.At<uint32_t>(i.s[2]);
         const uint32_t* const bits = c.At<uint32_t>(i.s[3]);
         Store<uint64_t>(c, i.d[0], [&](int l) { return Inserted(a[l], b[l], first[l], bits[l]); });
       }}};
}

// ---- floating point ---------------------------------------------------------------------------

// Returns the other operand if one is NaN; -0 is less than 0.
template <typename T>
T Maximum(T a, T b) {
  if (a != a) return b;
  if (b != b) return a;
  if (a == b) return std::signbit(a) ? b : a;
  return a < b ? b : a;
}
template <typename T>
T Minimum(T a, T b) {
  return -Maximum(-a, -b);
}

// The exact value is high + low; returns the largest float that is not above it.
float RoundDown(double high, double low) {
  const auto f = static_cast<float>(high);
  return (static_cast<double>(f) - high) - low > 0 ? std::nextafterf(f, -INFINITY) : f;
}
float FmaDown(float a, float b, float c) {
  const double product = static_cast<double>(a) * b, sum = product + c;
  if (!std::isfinite(sum)) return static_cast<float>(sum);
  const double t = sum - product;
  return RoundDown(sum, (product - (sum - t)) + (c - t));
}
float AddTowardsZero(float a, float b) {
  const double sum = static_cast<double>(a) + b;
  if (!std::isfinite(sum) || sum == 0) return static_cast<float>(sum);
  const double t = sum - a, error = (a - (sum - t)) + (b - t);
  return sum > 0 ? RoundDown(sum, error) : -RoundDown(-sum, -error);
}

// ex2.approx, correctly rounded; a device may be off by up to two units in the last place. ftz:
// subnormal numbers become zero.
float Exp2(float x) {
  return static_cast<float>(std::exp2(static_cast<double>(x)));
}
float Exp2Ftz(float x) {
  constexpr float kSmallest = std::numeric_limits<float>::min();
  const float y = Exp2(std::fabs(x) < kSmallest ? 0.0f : x);
  return y < kSmallest ? 0.0f : y;
}

template <typename T>
void AddFloating(FormTable& table, const std::string& type) {
  const std::string dot = "." + type;
  for (const std::string rn : {"", ".rn"}) {
    const std::string rounded = rn + dot;
    table["add" + rounded] = {Binary<T, T, T>([](T a, T b) { return a + b; })};
    table["sub" + rounded] = {Binary<T, T, T>([](T a, T b) { return a - b; })};
    table["mul" + rounded] = {Binary<T, T, T>([](T a, T b) { return a * b; })};
  }
  table["div.rn" + dot] = {Binary<T, T, T>([](T a, T b) { return a / b; })};
  table["max" + dot] = {Binary<T, T, T>([](T a, T b) { return Maximum(a, b); })};
  table["min" + dot] = {Binary<T, T, T>([](T a, T b) { return Minimum(a, b); })};
  table["sqrt.rn" + dot] = {Unary<T, T>([](T a) { return std::sqrt(a); })};
  table["rcp.rn" + dot] = {Unary<T, T>([](T a) { return T{1} / a; })};
  table["neg" + dot] = {Unary<T, T>([](T a) { return -a; })};
  table["abs" + dot] = {Unary<T, T>([](T a) { return std::fabs(a); })};
  // copysign returns the sign of a with the magnitude of b.
  table["copysign" + dot] = {Binary<T, T, T>([](T a, T b) { return std::copysign(b, a); })};
}

void FmaOfLanes(Context& c, const Instruction& i) {
  const float *a = c.At<float>(i.s[0]), *b = c.At<float>(i.s[1]), *e = c.At<float>(i.s[2]);
  Store<float>(c, i.d[0], [&](int l) { return std::fma(a[l], b[l], e[l]); });
}

#if defined(__x86_64__)
// FmaOfLanes with the FMA instruction, which most processors have but x86-64 does not guarantee.
__attribute__((target("avx2,fma"))) void FmaOfLanesFast(Context& c, const Instruction& i) {
  const float *a = c.At<float>(i.s[0]), *b = c.At<float>(i.s[1]), *e = c.At<float>(i.s[2]);
  float* const d = c.At<float>(i.d[0]);
  float sums[kLanes];
  for (int l = 0; l < kLanes; ++l) sums[l] = __builtin_fmaf(a[l], b[l], e[l]);
  for (int l = 0; l < kLanes; ++l) d[l] = (c.mask >> l & 1) != 0 ? sums[l] : d[l];
}
Function Fma() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? FmaOfLanesFast
                                                                         : FmaOfLanes;
}
#else
Function Fma() {
  return FmaOfLanes;
}
#endif

}  // namespace

void AddArithmetic(FormTable& table) {
  AddComparisons<int16_t>(table, "s16");
  AddComparisons<uint16_t>(table, "u16");
  AddComparisons<uint16_t>(table, "b16");
  AddComparisons<int32_t>(table, "s32");
  AddComparisons<uint32_t>(table, "u32");
  AddComparisons<uint32_t>(table, "b32");
  AddComparisons<int64_t>(table, "s64");
  AddComparisons<uint64_t>(table, "u64");
  AddComparisons<uint64_t>(table, "b64");
  AddComparisons<float>(table, "f32");
  AddComparisons<double>(table, "f64");
  AddPredicates(table);
  AddBits<uint16_t>(table, "b16");
  AddBits<uint32_t>(table, "b32");
  AddBits<uint64_t>(table, "b64");
  AddInteger<int16_t>(table, "s16");
  AddInteger<uint16_t>(table, "u16");
  AddInteger<int32_t>(table, "s32");
  AddInteger<uint32_t>(table, "u32");
  AddInteger<int64_t>(table, "s64");
  AddInteger<uint64_t>(table, "u64");
  for (const char* width : {"16", "32", "64"})
    table[std::string("shr.b") + width] = table[std::string("shr.u") + width];
  AddProducts(table);
  AddBitCounts(table);
  AddFloating<float>(table, "f32");
  AddFloating<double>(table, "f64");
  table["fma.rn.f32"] = {{"W,w,w,w", Fma()}};
  using U = uint32_t;
  table["fma.rn.f16x2"] = {Ternary<U>([](U a, U b, U c) { return FmaPairs<HalfFormat>(a, b, c); })};
  table["fma.rn.bf16x2"] = {
      Ternary<U>([](U a, U b, U c) { return FmaPairs<BFloat16Format>(a, b, c); })};
  table["fma.rm.f32"] = {
      Ternary<float>([](float a, float b, float c) { return FmaDown(a, b, c); })};
  table["add.rz.f32"] = {
      Binary<float, float, float>([](float a, float b) { return AddTowardsZero(a, b); })};
  table["ex2.approx.f32"] = {Unary<float, float>([](float a) { return Exp2(a); })};
  table["ex2.approx.ftz.f32"] = {Unary<float, float>([](float a) { return Exp2Ftz(a); })};
}

}  // namespace kuiper::simt::ptx
