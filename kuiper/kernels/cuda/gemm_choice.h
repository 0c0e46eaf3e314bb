// Which of a library's algorithms computes a matrix product. Plain C++: the caller knows the
// algorithms and times them.
//
// Algorithms add in different orders, so a choice by the clock would let two runs of one command
// differ in bits. An ordinary run therefore times nothing: it takes the choice that a file holds,
// else the first algorithm in the library's own order that is usable. The file is written on demand
// only (OpsOptions::tune), once per device, library and shape; then every run on the machine makes
// the same choice. If the first run that misses it wrote it, each fresh container would have
// another file and other bits. Where nobody asked for the same bits (Determinism::kOff) algorithms
// are timed at load.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

namespace kuiper {

// The choices in a file, one per line. A file that is damaged or not ours counts as empty, after
// one line in the log. A wrong choice costs speed only: it has to be usable like any other.
class GemmChoices {
 public:
  // In $KUIPER_CACHE_DIR, else $XDG_CACHE_HOME/kuiper, else $HOME/.cache/kuiper; "" without any.
  static std::string DefaultPath();

  explicit GemmChoices(std::string path);

  std::optional<int> Find(const std::string& key) const;
  // Adds a choice to the file and returns the one that stands there: another process may have been
  // first. Absent, after one line in the log, when the file cannot be written.
  std::optional<int> Keep(const std::string& key, int choice);

 private:
  bool Read();  // false: damaged
  bool Write() const;
  // Keep while there is no other process.
  std::optional<int> KeepLocked(const std::string& key, int choice);

  std::string path_;
  std::map<std::string, int> choices_;  // by key, which is one line without tabs
  bool writable_ = true;
};

enum class GemmTiming {
  kNever,
  kForThisRun,
  kForTheFile,  // what the file lacks
};

// The algorithms for one product, in the library's order.
struct GemmCandidates {
  std::string key;  // all that the meaning of an index depends on
  int count = 0;
  std::function<bool(int)> usable;
  std::function<double(int)> seconds;  // of one run; asked where several are usable
};

// The index of the algorithm to take; absent when none is usable.
std::optional<int> ChooseGemm(const GemmCandidates& candidates, GemmTiming timing,
                              GemmChoices& choices);

}  // namespace kuiper
