// Tests: x is NAME.
#include <algorithm>

#include "kuiper/jinja/builtin.h"
#include "kuiper/jinja/characters.h"

namespace kuiper::jinja {
namespace {

template <Kind... kKinds>
bool IsKind(Call& call, Value* result) {
  *result = Value::Bool((call.self.Is(kKinds) || ...));
  return true;
}

bool IsDefined(Call& call, Value* result) {
  *result = Value::Bool(!call.self.Is(Kind::kUndefined));
  return true;
}

bool IsIterable(Call& call, Value* result) {
  const Value& v = call.self;
  *result = Value::Bool(v.HasList() || v.Is(Kind::kDict) || v.Is(Kind::kString) ||
                        v.Is(Kind::kUndefined) || v.Is(Kind::kLoop));
  return true;
}

// True if len() and [] work.
bool IsSequenceTest(Call& call, Value* result) {
  const Value& v = call.self;
  *result = Value::Bool(v.IsSequence() || v.Is(Kind::kDict) || v.Is(Kind::kString) ||
                        v.Is(Kind::kUndefined));
  return true;
}

bool IsNumberTest(Call& call, Value* result) {
  *result = Value::Bool(call.self.IsNumber() || call.self.Is(Kind::kBigInt));
  return true;
}

bool IsCallable(Call& call, Value* result) {
  const Kind kind = call.self.kind;
  *result = Value::Bool(kind == Kind::kMacro || kind == Kind::kGlobal || kind == Kind::kMethod ||
                        kind == Kind::kLoop || kind == Kind::kUndefined);
  return true;
}

template <bool kWanted>
bool IsTruth(Call& call, Value* result) {
  *result = Value::Bool(call.self.Is(Kind::kBool) && (call.self.integer != 0) == kWanted);
  return true;
}

bool Remainder(Call& call, int64_t divisor, int64_t* rest) {
  if (!call.self.IsInteger()) return call.Fail("not an integer");
  if (divisor == 0) return call.Fail("division by zero");
  *rest = divisor == -1 ? 0 : call.self.integer % divisor;
  return true;
}

bool IsOdd(Call& call, Value* result) {
  int64_t rest = 0;
  if (!Remainder(call, 2, &rest)) return false;
  *result = Value::Bool(rest != 0);
  return true;
}

bool IsEven(Call& call, Value* result) {
  int64_t rest = 0;
  if (!Remainder(call, 2, &rest)) return false;
  *result = Value::Bool(rest == 0);
  return true;
}

bool IsDivisible(Call& call, Value* result) {
  int64_t divisor = 0, rest = 0;
  if (!call.Integer(0, "num", &divisor) || !Remainder(call, divisor, &rest)) return false;
  *result = Value::Bool(rest == 0);
  return true;
}

bool IsEqual(Call& call, Value* result) {
  *result = Value::Bool(AreEqual(call.self, call.args[0]));
  return true;
}

bool IsUnequal(Call& call, Value* result) {
  *result = Value::Bool(!AreEqual(call.self, call.args[0]));
  return true;
}

// Orders two values; `holds` decides from the result of Compare.
template <typename Holds>
bool Ordered(Call& call, Value* result, Holds holds) {
  for (const Value* value : {&call.self, &call.args[0]}) {
    if (value->Is(Kind::kUndefined)) return call.Fail(UndefinedMessage(*value));
  }
  const int order = Compare(call.self, call.args[0]);
  if (order == 2 && !(call.self.IsNumber() && call.args[0].IsNumber())) {
    return call.Fail("these values have no order");
  }
  *result = Value::Bool(order != 2 && holds(order));
  return true;
}

bool IsLess(Call& call, Value* result) {
  return Ordered(call, result, [](int order) { return order < 0; });
}
bool IsLessOrEqual(Call& call, Value* result) {
  return Ordered(call, result, [](int order) { return order <= 0; });
}
bool IsGreater(Call& call, Value* result) {
  return Ordered(call, result, [](int order) { return order > 0; });
}
bool IsGreaterOrEqual(Call& call, Value* result) {
  return Ordered(call, result, [](int order) { return order >= 0; });
}

bool IsIn(Call& call, Value* result) {
  bool contains = false;
  if (!Contains(call.run, call.args[0], call.self, call.node, &contains)) return false;
  *result = Value::Bool(contains);
  return true;
}

bool IsSame(Call& call, Value* result) {
  const Value &a = call.self, &b = call.args[0];
  // Strings have no identity here: equal strings are the same.
  *result =
      Value::Bool(a.kind == b.kind &&
                  (a.HasList() || a.Is(Kind::kDict) ? a.integer == b.integer : AreEqual(a, b)));
  return true;
}

// Tests str(x).isupper() or str(x).islower().
template <bool kUpper>
bool IsCase(Call& call, Value* result) {
  const std::string_view text = call.SelfText()->bytes();
  bool cased = false, right = true;
  for (size_t at = 0; at < text.size();) {
    const Character c = FirstCharacter(text.substr(at));
    at += c.size;
    if (!IsCased(c.code)) continue;
    cased = true;
    right = right && (kUpper ? IsUpper(c.code) : IsLower(c.code));
  }
  *result = Value::Bool(cased && right);
  return true;
}

template <const Builtin* (*kFind)(std::string_view)>
bool IsName(Call& call, Value* result) {
  *result = Value::Bool(call.self.Is(Kind::kString) && kFind(call.self.bytes()) != nullptr);
  return true;
}

bool IsEscaped(Call& call, Value* result) {
  *result = Value::Bool(call.self.is_markup);
  return true;
}

constexpr Builtin kTests[] = {
    {"defined", "", 0, IsDefined},
    {"undefined", "", 0, IsKind<Kind::kUndefined>},
    {"none", "", 0, IsKind<Kind::kNone>},
    {"string", "", 0, IsKind<Kind::kString>},
    {"mapping", "", 0, IsKind<Kind::kDict>},
    {"iterable", "", 0, IsIterable},
    {"sequence", "", 0, IsSequenceTest},
    {"boolean", "", 0, IsKind<Kind::kBool>},
    {"integer", "", 0, IsKind<Kind::kInt, Kind::kBigInt>},
    {"float", "", 0, IsKind<Kind::kFloat>},
    {"number", "", 0, IsNumberTest},
    {"true", "", 0, IsTruth<true>},
    {"false", "", 0, IsTruth<false>},
    {"callable", "", 0, IsCallable},
    {"odd", "", 0, IsOdd},
    {"even", "", 0, IsEven},
    {"divisibleby", "num", 1, IsDivisible},
    {"eq", "other", 1, IsEqual},
    {"equalto", "other", 1, IsEqual},
    {"==", "other", 1, IsEqual},
    {"ne", "other", 1, IsUnequal},
    {"!=", "other", 1, IsUnequal},
    {"lt", "other", 1, IsLess},
    {"lessthan", "other", 1, IsLess},
    {"<", "other", 1, IsLess},
    {"le", "other", 1, IsLessOrEqual},
    {"<=", "other", 1, IsLessOrEqual},
    {"gt", "other", 1, IsGreater},
    {"greaterthan", "other", 1, IsGreater},
    {">", "other", 1, IsGreater},
    {"ge", "other", 1, IsGreaterOrEqual},
    {">=", "other", 1, IsGreaterOrEqual},
    {"in", "seq", 1, IsIn},
    {"sameas", "other", 1, IsSame},
    {"upper", "", 0, IsCase<true>},
    {"lower", "", 0, IsCase<false>},
    {"filter", "", 0, IsName<FindFilter>},
    {"test", "", 0, IsName<FindTest>},
    {"escaped", "", 0, IsEscaped},
};

}  // namespace

const Builtin* FindTest(std::string_view name) {
  return FindIn(kTests, name);
}

}  // namespace kuiper::jinja
