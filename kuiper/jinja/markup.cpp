#include "kuiper/jinja/markup.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "kuiper/jinja/print.h"

namespace kuiper::jinja {
namespace {

// Escapes the arguments of replace, join and the methods that pad. format() itself escapes what it
// prints.
bool EscapeArguments(std::string_view method, Call* call) {
  Heap& heap = call->heap();
  if (method == "join") {
    const List* items = Items(call->run, call->args[0], call->node);
    if (items == nullptr) return false;
    List* escaped = heap.NewList();
    for (const Value& item : items->items) heap.Push(escaped, Escaped(heap, item));
    call->args[0] = Value::OfList(escaped);
  } else if (method == "replace" || method == "ljust" || method == "rjust" || method == "center") {
    if (call->Given(1)) call->args[1] = Escaped(heap, call->args[1]);
  }
  return true;
}

}  // namespace

void AppendEscaped(const Text& text, TextBuilder* out) {
  constexpr std::string_view kSpecial = "&<>\"'";
  constexpr std::string_view kEntities[] = {"&amp;", "&lt;", "&gt;", "&#34;", "&#39;"};
  for (size_t at = 0; at < text.size();) {
    const size_t special = std::min(text.bytes().find_first_of(kSpecial, at), text.size());
    out->AppendPart(text, at, special - at);
    if (special < text.size()) {
      out->Append(kEntities[kSpecial.find(text.bytes()[special])], text.OriginAt(special));
    }
    at = special + 1;
  }
}

Value Escaped(Heap& heap, const Value& value) {
  if (value.is_markup) return value;
  TextBuilder plain = heap.Builder(), builder = heap.Builder();
  AppendStr(value, &plain);
  AppendEscaped(*heap.Copy(plain), &builder);
  Value result = Value::String(heap.Copy(builder));
  result.is_markup = true;
  return result;
}

void MarkAsMarkup(Value* value) {
  if (value->Is(Kind::kString)) value->is_markup = true;
  if (!value->IsSequence()) return;
  for (Value& item : value->list->items) item.is_markup = item.Is(Kind::kString);
}

bool CallMethod(Runtime& run, const Builtin& method, const Node& node, const Value& self,
                std::vector<Value> args, Keywords keywords, Value* result) {
  if (!self.is_markup) {
    return CallBuiltin(run, method, node, self, std::move(args), std::move(keywords), result);
  }
  Call call{run, node, self, std::move(args), std::move(keywords)};
  if (!Bind(method, &call) || !EscapeArguments(method.name, &call) ||
      !method.function(call, result)) {
    return false;
  }
  MarkAsMarkup(result);
  return run.Work(node, 0);
}

}  // namespace kuiper::jinja
