// What the command line knows about each flag: spelling, kind of value, range, and where --help
// lists it. The default and the help text live with the gflags variable of the same name
// (flags.cpp, with '_' for '-'). Plain data; args.cpp interprets it.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "kuiper/base/status.h"

namespace kuiper::demo {

enum class FlagKind {
  kBool,
  kInt,         // within [min, max]
  kPowerOfTwo,  // the same, and a power of two
  kIntList,     // comma-separated, each within [min, max]
  kUint64,
  kFloat,  // within [min, max], or (min, max] with open_min
  kSize,   // bytes with an optional K, M or G
  kText,
  kTextList,  // may be repeated; every occurrence counts
  kChoice,    // one of `choices`
  kDevice,    // cpu, simt, cuda or cuda:N
};

enum class FlagUse {
  kWorks,
  kNoEffect,     // accepted for old command lines; says so in one note
  kUnavailable,  // known, but this program cannot do it: an error that says why
};

// The programs that take a flag.
enum class FlagPrograms {
  kAll,
  kText,   // one answer or a chat: qwen_infer, qwen3_infer
  kBatch,  // kuiper_batch
};

struct FlagSpec {
  const char* name;
  FlagKind kind;
  const char* value = "";       // how --help names the value, e.g. "N"
  const char* short_name = "";  // without '-', e.g. "p"
  double min = 0;
  double max = 0;
  bool open_min = false;
  const char* choices = "";        // separated by '|'
  const char* bare_value = "";     // kChoice: meaning of the flag without a value
  const char* negated_value = "";  // not kBool: value that --no-NAME stands for
  FlagUse use = FlagUse::kWorks;
  const char* why = "";       // kNoEffect, kUnavailable: the end of the sentence
  const char* harmless = "";  // kUnavailable: the value that asks for nothing
  FlagPrograms programs = FlagPrograms::kAll;

  bool TakenBy(FlagPrograms program) const {
    return programs == FlagPrograms::kAll || programs == program;
  }
};

// Another spelling of a flag; it takes the values of that flag unless `fixed` says otherwise.
struct FlagAlias {
  const char* alias;
  const char* name;
  const char* fixed = "";   // takes no value and stands for this one
  bool takes_bool = false;  // true and false stand for on and off
};

struct FlagGroup {
  const char* title;
  std::span<const FlagSpec> flags;
};

std::span<const FlagGroup> FlagGroups();
std::span<const FlagAlias> FlagAliases();

// nullptr when there is none.
const FlagSpec* FindFlag(std::string_view name);

// Checks `value` for the flag and returns it in the form its gflags variable takes. `spelled` is
// the option as the user wrote it, for messages.
StatusOr<std::string> CheckFlagValue(const FlagSpec& flag, const std::string& spelled,
                                     const std::string& value);

}  // namespace kuiper::demo
