// Chooses the algorithm of a library for a matrix product. Plain C++: the caller supplies the
// algorithms and times them.
//
// Algorithms sum in different orders, so a choice by time would let two runs of one command differ
// in bits. A normal run therefore times nothing: it takes the choice stored in a file, or else the
// first usable algorithm in the library's order. The file is written only on demand
// (OpsOptions::tune), once per device, library and shape; then every run on the machine makes the
// same choice. If the first run without a stored choice wrote the file, each fresh container would
// have its own file and other bits. Where equal bits are not required (Determinism::kOff),
// algorithms are timed at load.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

namespace kuiper {

// The choices in a file, one per line. A damaged or foreign file counts as empty, after one line in
// the log. A wrong choice costs only speed: it is checked for usability like any other.
class GemmChoices {
 public:
  // The file in $KUIPER_CACHE_DIR, or else $XDG_CACHE_HOME/kuiper, or else $HOME/.cache/kuiper.
  // Empty if none of these variables is set.
  static std::string DefaultPath();

  explicit GemmChoices(std::string path);

  std::optional<int> Find(const std::string& key) const;
  // Adds a choice to the file and returns the stored one, which another process may have added
  // first. Returns nothing, after one line in the log, if the file cannot be written.
  std::optional<int> Keep(const std::string& key, int choice);

 private:
  bool Read();  // returns false if the file is damaged
  bool Write() const;
  // Keep's work while the file lock excludes other processes.
  std::optional<int> KeepLocked(const std::string& key, int choice);

  std::string path_;
  std::map<std::string, int> choices_;  // by key, one line without tabs
  bool writable_ = true;
};

enum class GemmTiming {
  kNever,
  kForThisRun,
  kForTheFile,  // times what the file lacks, then stores it
};

// The algorithms for one product, in the library's order.
struct GemmCandidates {
  std::string key;  // everything that the meaning of an index depends on
  int count = 0;
  std::function<bool(int)> usable;
  std::function<double(int)> seconds;  // time of one run; called only if several are usable
};

// Returns the index of the chosen algorithm, or nothing if none is usable.
std::optional<int> ChooseGemm(const GemmCandidates& candidates, GemmTiming timing,
                              GemmChoices& choices);

}  // namespace kuiper
