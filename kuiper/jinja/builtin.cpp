#include "kuiper/jinja/builtin.h"

#include <algorithm>
#include <utility>

#include "kuiper/base/text.h"
#include "kuiper/jinja/print.h"

namespace kuiper::jinja {

Heap& Call::heap() const {
  return run.heap();
}

bool Call::Fail(const std::string& message) const {
  return run.Fail(node, message);
}

bool Call::Integer(size_t i, const char* name, int64_t* value) const {
  if (!Given(i) || args[i].Is(Kind::kNone)) return true;
  if (!args[i].IsInteger()) return Fail(std::string(name) + " is not an integer");
  *value = args[i].integer;
  return true;
}

bool Call::String(size_t i, const char* name, const Text** text) const {
  if (args[i].Is(Kind::kUndefined) && args[i].node != nullptr) {
    return Fail(UndefinedMessage(args[i]));
  }
  if (!args[i].Is(Kind::kString)) {
    return Fail(std::string(name) + " must be str, not " + std::string(TypeName(args[i])));
  }
  *text = args[i].text;
  return true;
}

const Text* Call::SelfText() const {
  if (self.Is(Kind::kString)) return self.text;
  TextBuilder builder = heap().Builder();
  AppendStr(self, &builder);
  return heap().Copy(builder);
}

bool Bind(const Builtin& builtin, Call* call) {
  if (builtin.parameters == "*") return true;
  const std::string name = std::string(builtin.name) + "()";
  std::vector<Value> bound;
  size_t used = 0;
  std::string_view rest = builtin.parameters;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view parameter = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const auto named = std::find_if(call->keywords.begin(), call->keywords.end(),
                                    [&](const auto& k) { return k.first == parameter; });
    const bool by_name = named != call->keywords.end();
    if (bound.size() < call->args.size()) {
      if (by_name) {
        return call->Fail(name + " got two values for " + Quoted(parameter));
      }
      bound.push_back(call->args[bound.size()]);
    } else if (by_name) {
      bound.push_back(named->second);
      ++used;
    } else if (static_cast<int>(bound.size()) < builtin.required) {
      return call->Fail(name + " lacks its argument " + Quoted(parameter));
    } else {
      bound.push_back(Value::Undefined(nullptr));
    }
  }
  if (call->args.size() > bound.size()) return call->Fail(name + " got too many arguments");
  if (used < call->keywords.size()) {
    return call->Fail(name + " got an unexpected keyword argument");
  }
  call->args = std::move(bound);
  return true;
}

bool CallBuiltin(Runtime& run, const Builtin& builtin, const Node& node, const Value& self,
                 std::vector<Value> args, Keywords keywords, Value* result) {
  Call call{run, node, self, std::move(args), std::move(keywords)};
  return Bind(builtin, &call) && builtin.function(call, result) && run.Work(node, 0);
}

bool CallFilter(Runtime& run, std::string_view name, const Node& node, const Value& self,
                std::vector<Value> args, Keywords keywords, Value* result) {
  const Builtin* filter = FindFilter(name);
  if (filter == nullptr) return run.Fail(node, "there is no filter " + Quoted(name));
  if (!run.Enter(node)) return false;
  const bool good =
      CallBuiltin(run, *filter, node, self, std::move(args), std::move(keywords), result);
  run.Leave();
  return good;
}

bool CallTest(Runtime& run, std::string_view name, const Node& node, const Value& self,
              std::vector<Value> args, bool* result) {
  const Builtin* test = FindTest(name);
  if (test == nullptr) return run.Fail(node, "there is no test " + Quoted(name));
  Value value;
  if (!CallBuiltin(run, *test, node, self, std::move(args), {}, &value)) return false;
  *result = IsTrue(value);
  return true;
}

bool Lookup(Call& call, const Value& item, const Value& attribute, Value* result,
            const Value* otherwise) {
  *result = item;
  std::string_view path = attribute.Is(Kind::kString) ? attribute.bytes() : "";
  while (true) {
    const size_t dot = std::min(path.find('.'), path.size());
    const std::string_view name = path.substr(0, dot);
    const bool number = !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
    Value key = attribute;
    if (attribute.Is(Kind::kString)) key = Value::String(call.heap().Refer(name, kTemplate));
    if (number && name.size() < 10) key = Value::Int(std::stoll(std::string(name)));
    const Value object = *result;
    if (!Element(call.run, object, key, call.node, result)) return false;
    if (result->Is(Kind::kUndefined) && otherwise != nullptr) *result = *otherwise;
    if (dot == path.size()) return true;
    path.remove_prefix(dot + 1);
  }
}

const Builtin* FindFilter(std::string_view name) {
  for (const auto find : {FindTextFilter, FindListFilter, FindSortFilter}) {
    if (const Builtin* found = find(name)) return found;
  }
  return nullptr;
}

}  // namespace kuiper::jinja
