#include <algorithm>
#include <cctype>
#include <cmath>
#include <initializer_list>
#include <string>

#include "emulator/half.h"
#include "emulator/ptx_context.h"

// Moves, selections and conversions.

namespace kuiper::simt::ptx {
namespace {

void MovePredicate(Context& c, const Instruction& i) {
  StorePredicate(c, i.d[0], *c.At<uint32_t>(i.s[0]));
}

void Pack16(Context& c, const Instruction& i) {
  const uint32_t *a = c.At<uint32_t>(i.s[0]), *b = c.At<uint32_t>(i.s[1]);
  Store<uint32_t>(c, i.d[0], [&](int l) { return (a[l] & 0xffff) | b[l] << 16; });
}
void Pack32(Context& c, const Instruction& i) {
  const uint32_t *a = c.At<uint32_t>(i.s[0]), *b = c.At<uint32_t>(i.s[1]);
  Store<uint64_t>(c, i.d[0], [&](int l) { return a[l] | uint64_t{b[l]} << 32; });
}
// Unpacks from a copy, because the source may also be a destination.
void Unpack16(Context& c, const Instruction& i) {
  const uint32_t* const a = c.At<uint32_t>(i.s[0]);
  uint32_t from[kLanes];
  std::copy(a, a + kLanes, from);
  Store<uint32_t>(c, i.d[0], [&](int l) { return from[l] & 0xffff; });
  Store<uint32_t>(c, i.d[1], [&](int l) { return from[l] >> 16; });
}
void Unpack32(Context& c, const Instruction& i) {
  const uint64_t* const a = c.At<uint64_t>(i.s[0]);
  Store<uint32_t>(c, i.d[0], [&](int l) { return static_cast<uint32_t>(a[l]); });
  Store<uint32_t>(c, i.d[1], [&](int l) { return static_cast<uint32_t>(a[l] >> 32); });
}

template <typename U>
Form Select() {
  const Function run = [](Context& c, const Instruction& i) {
    const Lane<U>*a = c.At<Lane<U>>(i.s[0]), *b = c.At<Lane<U>>(i.s[1]);
    const uint32_t first = *c.At<uint32_t>(i.s[2]);
    Store<U>(c, i.d[0], [&](int l) { return Read<U>((first >> l & 1) != 0 ? a[l] : b[l]); });
  };
  const char letter = Letter<U>(false);
  return {{Letter<U>(true), ',', letter, ',', letter, ',', 'p'}, run};
}

template <typename U>
void AddMoves(FormTable& table, const char* bits, std::initializer_list<const char*> types) {
  for (const std::string type : types) {
    table["mov." + type + bits].push_back(Unary<U, U>([](U a) { return a; }));
    table["selp." + type + bits].push_back(Select<U>());
  }
}

// To nearest, ties to even, clamped; a NaN is 0.
int32_t Nearest(float a) {
  if (std::isnan(a)) return 0;
  return static_cast<int32_t>(std::clamp(std::nearbyint(double{a}), -0x1p31, 0x1p31 - 1));
}

// Truncated, clamped; a NaN is 0.
uint64_t Truncated(double a) {
  if (!(a > 0)) return 0;
  return a >= 0x1p64 ? ~uint64_t{0} : static_cast<uint64_t>(a);
}

void AddFloatConversions(FormTable& table) {
  table["cvt.f32.f16"] = {Unary<float, uint16_t>([](uint16_t a) { return HalfFormat::Decode(a); })};
  table["cvt.rn.f16.f32"] = {Unary<uint16_t, float>([](float a) { return HalfFormat::Encode(a); })};
  table["cvt.rn.bf16.f32"] = {
      Unary<uint16_t, float>([](float a) { return BFloat16Format::Encode(a); })};
  table["cvt.sat.f32.f32"] = {Unary<float, float>([](float a) {
    return !(a > 0) ? 0.0f : a > 1 ? 1.0f : a;
  })};
  table["cvt.f64.f32"] = {Unary<double, float>([](float a) { return static_cast<double>(a); })};
  table["cvt.rpi.f64.f64"] = {Unary<double, double>([](double a) { return std::ceil(a); })};
  table["cvt.rn.f32.s32"] = {
      Unary<float, int32_t>([](int32_t a) { return static_cast<float>(a); })};
  table["cvt.rn.f32.s16"] = {
      Unary<float, int16_t>([](int16_t a) { return static_cast<float>(a); })};
  table["cvt.rni.s32.f32"] = {Unary<int32_t, float>([](float a) { return Nearest(a); })};
  table["cvt.rn.f32.u32"] = {
      Unary<float, uint32_t>([](uint32_t a) { return static_cast<float>(a); })};
  table["cvt.rn.f32.u64"] = {
      Unary<float, uint64_t>([](uint64_t a) { return static_cast<float>(a); })};
  table["cvt.rn.f64.u64"] = {
      Unary<double, uint64_t>([](uint64_t a) { return static_cast<double>(a); })};
  table["cvt.rzi.u64.f32"] = {Unary<uint64_t, float>([](float a) { return Truncated(a); })};
  table["cvt.rzi.u64.f64"] = {Unary<uint64_t, double>([](double a) { return Truncated(a); })};
}

// Adds a conversion of V, the lower part of A, to D. A 16-bit value may be read from, or stored in,
// a wider register.
template <typename D, typename A, typename V = A>
void AddConversion(FormTable& table, const std::string& types) {
  std::vector<Form>& forms = table["cvt." + types];
  forms = {Unary<D, A>([](A a) { return static_cast<D>(static_cast<V>(a)); })};
  const Form form = forms[0];
  for (const size_t at : {size_t{0}, size_t{2}}) {
    if (std::tolower(form.pattern[at]) != 'h') continue;
    forms.push_back(form);
    forms.back().pattern[at] = at == 0 ? 'W' : 'w';
  }
}

// Converts between an address of shared memory and a generic one.
template <int kSign>
void FromOrToShared(Context& c, const Instruction& i) {
  const uint64_t* const a = c.At<uint64_t>(i.s[0]);
  const uint64_t base = kSign * reinterpret_cast<uint64_t>(c.shared->data());
  Store<uint64_t>(c, i.d[0], [&](int l) { return a[l] + base; });
}

}  // namespace

void AddConversions(FormTable& table) {
  AddMoves<uint16_t>(table, "16", {"b", "u", "s"});
  AddMoves<uint32_t>(table, "32", {"b", "u", "s", "f"});
  AddMoves<uint64_t>(table, "64", {"b", "u", "s", "f"});
  table["mov.pred"] = {{"P,p", MovePredicate}};
  table["mov.b32"].push_back({"W,hh", Pack16});
  table["mov.b32"].push_back({"HH,w", Unpack16});
  table["mov.b64"].push_back({"L,ww", Pack32});
  table["mov.b64"].push_back({"WW,l", Unpack32});
  AddFloatConversions(table);
  AddConversion<uint16_t, uint32_t>(table, "u16.u32");
  AddConversion<uint16_t, uint64_t>(table, "u16.u64");
  AddConversion<uint32_t, uint16_t>(table, "u32.u16");
  AddConversion<uint16_t, uint16_t>(table, "u16.u16");
  AddConversion<int32_t, int16_t>(table, "s32.s16");
  AddConversion<int16_t, int16_t, int8_t>(table, "s16.s8");
  AddConversion<int64_t, int16_t>(table, "s64.s16");
  AddConversion<uint64_t, uint16_t>(table, "u64.u16");
  AddConversion<int64_t, int32_t>(table, "s64.s32");
  AddConversion<uint64_t, uint32_t>(table, "u64.u32");
  AddConversion<uint32_t, uint64_t>(table, "u32.u64");
  AddConversion<int32_t, int64_t>(table, "s32.s64");
  table["cvta.to.global.u64"] = {Unary<uint64_t, uint64_t>([](uint64_t a) { return a; })};
  table["cvta.shared.u64"] = {{"L,l", FromOrToShared<1>}};
  table["cvta.to.shared.u64"] = {{"L,l", FromOrToShared<-1>}};
}

}  // namespace kuiper::simt::ptx
