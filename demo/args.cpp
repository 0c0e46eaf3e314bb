#include "demo/args.h"

#include <gflags/gflags.h>

#include <algorithm>
#include <optional>

#include "demo/flag_table.h"
#include "kuiper/base/check.h"
#include "kuiper/io/utf8.h"

namespace kuiper::demo {
namespace {

Status Bad(const std::string& message, const std::string& hint = "") {
  return Status(StatusCode::kInvalidArgument, message, hint);
}

// One way to write an option.
struct Spelling {
  std::string name;         // without dashes
  const FlagSpec* flag;     // nullptr: --help and --version
  std::string fixed;        // not empty: takes no value and means this one
  bool takes_bool = false;  // an alias for on|off that is written true|false
};

using Spellings = std::vector<Spelling>;

Spellings LongSpellings(FlagPrograms program) {
  Spellings list = {{"help", nullptr, "", false}, {"version", nullptr, "", false}};
  for (const FlagGroup& group : FlagGroups()) {
    for (const FlagSpec& flag : group.flags) {
      if (!flag.TakenBy(program)) continue;
      list.push_back({flag.name, &flag, "", false});
      const std::string negated = flag.kind == FlagKind::kBool ? "false" : flag.negated_value;
      if (!negated.empty()) list.push_back({std::string("no-") + flag.name, &flag, negated, false});
    }
  }
  for (const FlagAlias& alias : FlagAliases()) {
    const FlagSpec* flag = FindFlag(alias.name);
    if (flag->TakenBy(program)) list.push_back({alias.alias, flag, alias.fixed, alias.takes_bool});
  }
  return list;
}

int EditDistance(const std::string& a, const std::string& b) {
  std::vector<int> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substituted, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

// "error: unknown option --page-attention; did you mean --paged-attention?"
Status UnknownOption(const Spellings& spellings, const std::string& spelled,
                     const std::string& name) {
  constexpr size_t kLongestOption = 40;  // anything longer is no typing error
  const Spelling* best = nullptr;
  int best_distance = 0;
  if (name.size() <= kLongestOption) {
    for (const Spelling& spelling : spellings) {
      const int distance = EditDistance(name, spelling.name);
      if (best == nullptr || distance < best_distance) {
        best = &spelling;
        best_distance = distance;
      }
    }
  }
  const std::string shown = ReplaceInvalidUtf8(spelled.substr(0, kLongestOption + 2));
  if (best != nullptr && best_distance <= std::max<int>(1, static_cast<int>(name.size()) / 3)) {
    return Bad("unknown option " + shown + "; did you mean --" + best->name + "?");
  }
  return Bad("unknown option " + shown, "--help lists all options");
}

// Exact names first, then prefixes that mean one flag only.
StatusOr<const Spelling*> FindLong(const Spellings& spellings, const std::string& spelled,
                                   std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  std::vector<const Spelling*> matches;
  for (const Spelling& spelling : spellings) {
    if (spelling.name == name) return &spelling;
    if (!name.empty() && spelling.name.starts_with(name)) matches.push_back(&spelling);
  }
  if (matches.empty()) return UnknownOption(spellings, spelled, name);
  const auto same = [&](const Spelling* s) {
    return s->flag != nullptr && s->flag == matches[0]->flag && s->fixed == matches[0]->fixed &&
           s->takes_bool == matches[0]->takes_bool;
  };
  if (matches.size() == 1 || std::all_of(matches.begin(), matches.end(), same)) return matches[0];
  std::string list;
  for (const Spelling* match : matches) list += (list.empty() ? "--" : ", --") + match->name;
  return Bad("option " + spelled + " is ambiguous: " + list);
}

std::optional<Spelling> FindShort(FlagPrograms program, const std::string& name) {
  if (name == "h") return Spelling{"help", nullptr, "", false};
  for (const FlagGroup& group : FlagGroups()) {
    for (const FlagSpec& flag : group.flags) {
      if (name.empty() || name != flag.short_name || !flag.TakenBy(program)) continue;
      return Spelling{flag.name, &flag, "", false};
    }
  }
  return std::nullopt;
}

class Parser {
 public:
  Parser(const std::vector<std::string>& args, FlagPrograms program)
      : args_(args), program_(program), spellings_(LongSpellings(program)) {}

  StatusOr<ParsedArgs> Run() {
    bool options_ended = false;
    while (next_ < args_.size() && !parsed_.help && !parsed_.version) {
      const std::string& arg = args_[next_++];
      if (options_ended || arg.size() < 2 || arg[0] != '-') {
        parsed_.positionals.push_back(arg);
      } else if (arg == "--") {
        options_ended = true;
      } else {
        KU_RETURN_IF_ERROR(ParseOption(arg));
      }
    }
    return std::move(parsed_);
  }

 private:
  Status ParseOption(const std::string& arg) {
    const size_t equals = arg.find('=');
    const std::string spelled = arg.substr(0, equals);
    std::optional<std::string> value;
    if (equals != std::string::npos) value = arg.substr(equals + 1);

    Spelling spelling;
    if (spelled.starts_with("--")) {
      KU_ASSIGN_OR_RETURN(const Spelling* found, FindLong(spellings_, spelled, spelled.substr(2)));
      spelling = *found;
    } else {
      const std::optional<Spelling> found = FindShort(program_, spelled.substr(1));
      if (!found.has_value()) return UnknownOption(spellings_, spelled, spelled.substr(1));
      spelling = *found;
    }
    if (spelling.flag == nullptr) {
      if (value.has_value()) return Bad(spelled + " takes no value");
      (spelling.name == "help" ? parsed_.help : parsed_.version) = true;
      return OkStatus();
    }
    return Assign(spelling, spelled, value);
  }

  Status Assign(const Spelling& spelling, const std::string& spelled,
                std::optional<std::string> value) {
    const FlagSpec& flag = *spelling.flag;
    if (!spelling.fixed.empty()) {
      bool apply = true;  // --no-stream=false means --stream
      if (value.has_value() && flag.kind == FlagKind::kBool) {
        KU_ASSIGN_OR_RETURN(const std::string checked, CheckFlagValue(flag, spelled, *value));
        apply = checked == "true";
      } else if (value.has_value()) {
        return Bad(spelled + " takes no value");
      }
      value = apply ? spelling.fixed : "true";
    } else if (!value.has_value() && flag.kind == FlagKind::kBool) {
      value = "true";
    } else if (!value.has_value() && flag.bare_value[0] != '\0') {
      const bool takes_next = next_ < args_.size() && CheckFlagValue(flag, "", args_[next_]).ok();
      value = takes_next ? args_[next_++] : flag.bare_value;
    } else if (!value.has_value()) {
      KU_ASSIGN_OR_RETURN(value, NextValue(spelled));
    }
    if (spelling.takes_bool) {
      KU_ASSIGN_OR_RETURN(value, OnOff(spelled, *value));
    }
    KU_ASSIGN_OR_RETURN(std::string checked, CheckFlagValue(flag, spelled, *value));
    std::vector<std::string>& values = parsed_.values[flag.name];
    if (flag.kind != FlagKind::kTextList) values.clear();  // the last one wins
    values.push_back(std::move(checked));
    return OkStatus();
  }

  static StatusOr<std::string> OnOff(const std::string& spelled, const std::string& value) {
    static constexpr FlagSpec kBoolean = {.name = "", .kind = FlagKind::kBool};
    KU_ASSIGN_OR_RETURN(const std::string checked, CheckFlagValue(kBoolean, spelled, value));
    return std::string(checked == "true" ? "on" : "off");
  }

  // The next argument, unless it is plainly another option whose own value was forgotten.
  StatusOr<std::string> NextValue(const std::string& spelled) {
    if (next_ == args_.size() || args_[next_] == "--") return Bad(spelled + " needs a value");
    const std::string& value = args_[next_];
    if (value.starts_with("--")) {
      const std::string name = value.substr(2, value.find('=') - 2);
      for (const Spelling& spelling : spellings_) {
        if (spelling.name != name) continue;
        return Bad(spelled + " needs a value, but " + value.substr(0, value.find('=')) + " follows",
                   "write " + spelled + "=" + value + " if that is the value");
      }
    }
    ++next_;
    return value;
  }

  const std::vector<std::string>& args_;
  FlagPrograms program_;
  Spellings spellings_;
  size_t next_ = 0;
  ParsedArgs parsed_;
};

}  // namespace

StatusOr<ParsedArgs> ParseArgs(const std::vector<std::string>& args, FlagPrograms program) {
  return Parser(args, program).Run();
}

void StoreFlags(const ParsedArgs& args) {
  for (const auto& [name, values] : args.values) {
    std::string variable = name;
    std::replace(variable.begin(), variable.end(), '-', '_');
    const std::string done = gflags::SetCommandLineOption(variable.c_str(), values.back().c_str());
    KU_CHECK(!done.empty(), "gflags refuses --" + name + "=" + values.back());
  }
}

bool AsksForJson(const std::vector<std::string>& args) {
  bool json = false;
  for (size_t i = 0; i < args.size() && args[i] != "--"; ++i) {
    const size_t equals = args[i].find('=');
    const std::string name = args[i].substr(0, equals);
    if (name != "-o" && name != "--output-format") continue;
    const std::string value = equals != std::string::npos ? args[i].substr(equals + 1)
                              : i + 1 < args.size()       ? args[i + 1]
                                                          : "";
    json = value == "json" || value == "jsonl";
  }
  return json;
}

}  // namespace kuiper::demo
