// Status and StatusOr: how a function reports errors from outside (files, configs, requests, memory
// sizing). Contracts between our own functions use KU_CHECK (check.h) instead. Messages are one
// line, start in lower case and name the culprit; `hint` says what to do. Neither depends on how a
// program spells its parameters: as flags, as fields of a body.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "kuiper/base/check.h"

namespace kuiper {

// The kinds of errors that callers distinguish. The programs map them to exit codes
// (command_line/exit_code.h).
enum class StatusCode {
  kOk,
  kInvalidArgument,    // a bad option, request or parameter
  kModel,              // model file: missing, unreadable, truncated, malformed, unsupported
  kTokenizer,          // tokenizer: missing, unparsable, does not match the model
  kInput,              // prompt, messages or image: missing, empty, undecodable
  kContextExceeded,    // prompt longer than the context
  kResourceExhausted,  // memory plan does not fit, allocation failed, KV pool exhausted
  kUnavailable,        // device missing, no kernel image, driver too old, device fault
  kInternal,           // unexpected failure at run time
};

// Spells the name of a parameter as a program writes it.
using Speller = std::string (*)(std::string_view name);
// Returns the parameter `name` as part of a message or hint; the program that shows it spells it.
std::string Param(std::string_view name);
// Returns the name unchanged: num_blocks.
std::string BareName(std::string_view name);
// Returns `text` with all its parameters spelled.
std::string SpellParams(std::string_view text, Speller spell);

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message, std::string hint = "")
      : code_(code), message_(std::move(message)), hint_(std::move(hint)) {}

  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  // What is wrong: one line, without "error: " in front. Line breaks and control characters of
  // quoted files and command lines never appear in it. message(Param) can be part of another
  // Status.
  std::string message(Speller spell = BareName) const;
  // What to do about it: at most two lines, may be empty.
  std::string hint(Speller spell = BareName) const;

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
  std::string hint_;
};

inline Status OkStatus() {
  return Status();
}

// Either a value or the Status that explains its absence. value() CHECKs ok().
template <typename T>
class [[nodiscard]] StatusOr {
 public:
  StatusOr(Status status) : v_(std::move(status)) {  // NOLINT(google-explicit-constructor)
    KU_CHECK(!std::get<Status>(v_).ok(), "StatusOr built from an OK status");
  }
  StatusOr(T value) : v_(std::move(value)) {}  // NOLINT(google-explicit-constructor)

  bool ok() const { return std::holds_alternative<T>(v_); }
  Status status() const { return ok() ? Status() : std::get<Status>(v_); }
  T& value() & {
    KU_CHECK(ok(), status().message());
    return std::get<T>(v_);
  }
  const T& value() const& {
    KU_CHECK(ok(), status().message());
    return std::get<T>(v_);
  }
  T&& value() && {
    KU_CHECK(ok(), status().message());
    return std::get<T>(std::move(v_));
  }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }

 private:
  std::variant<Status, T> v_;
};

// Returns from the calling function if `expr` is not OK.
#define KU_RETURN_IF_ERROR(expr)             \
  do {                                       \
    ::kuiper::Status ku_status_ = (expr);    \
    if (!ku_status_.ok()) return ku_status_; \
  } while (false)

#define KU_CONCAT_INNER_(a, b) a##b
#define KU_CONCAT_(a, b) KU_CONCAT_INNER_(a, b)
// KU_ASSIGN_OR_RETURN(auto x, F()): declares x from the value, or returns the Status.
#define KU_ASSIGN_OR_RETURN(lhs, expr) \
  KU_ASSIGN_OR_RETURN_IMPL_(KU_CONCAT_(ku_or_, __LINE__), lhs, expr)
#define KU_ASSIGN_OR_RETURN_IMPL_(tmp, lhs, expr) \
  auto tmp = (expr);                              \
  if (!tmp.ok()) return tmp.status();             \
  lhs = std::move(tmp).value()

}  // namespace kuiper
