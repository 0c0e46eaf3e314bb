// The report of kuiper_bench: facts about the run and the machine, and lines of figures. Lines are
// printed as they come, and kept for JSON, CSV and a comparison with an earlier report. Measures
// nothing itself.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "kuiper/base/json.h"
#include "kuiper/base/status.h"

namespace kuiper::tools {

using Json = nlohmann::ordered_json;

// A figure that was measured several times.
struct Spread {
  double median = 0, low = 0, high = 0;  // quartiles around the median
  int count = 0;                         // 0: the figure is unknown

  // Returns the figure in another unit.
  Spread Times(double factor) const {
    return {median * factor, low * factor, high * factor, count};
  }
};

Spread SpreadOf(std::vector<double> values);
double Median(std::vector<double> values);

// One line: the keys that identify it, and its figures.
class Line {
 public:
  // Lines of two reports with equal keys are compared.
  Line& Key(std::string name, std::string value);
  Line& Key(std::string name, int64_t value);
  // Adds the figure to compare; smaller is better. The column "spread" has the interquartile range
  // in percent of the median.
  Line& Cost(std::string name, const Spread& value, int digits = 2);
  // Adds a figure; absent if there is no measurement on this machine.
  Line& Figure(std::string name, std::optional<double> value, int digits = 1);
  // Adds a share of a whole, printed in percent, with `digits` decimals.
  Line& Share(std::string name, std::optional<double> value, int digits = 1);
  // Adds a ratio, printed with an "x".
  Line& Ratio(std::string name, std::optional<double> value);

 private:
  friend class Report;
  enum class Kind { kKey, kCost, kFigure, kShare, kRatio };
  struct Cell {
    std::string name;
    Kind kind;
    std::variant<std::string, int64_t, Spread, std::optional<double>> value;
    int digits = 0;
  };
  static std::vector<std::string> Texts(const Cell& cell);

  std::vector<Cell> cells_;
};

// JSON fields of a row that are used for comparison with other reports.
inline constexpr const char* kQuartiles = "_quartiles";  // suffix of the name
inline constexpr const char* kOfRoof = "of_roof";

// A line's cost, and the keys that identify the line.
struct ReportedCost {
  std::vector<std::pair<std::string, std::string>> keys;
  std::string name;
  Spread value;
  int digits = 0;
  std::optional<double> of_roof;
};

class Report {
 public:
  explicit Report(std::string scenario);

  // Sets a fact. Facts keep the order in which they are set. An object is printed as a line of its
  // own.
  void Set(const std::string& name, Json value);
  // Prints a line of text between tables.
  void Print(const char* format, ...) __attribute__((format(printf, 2, 3)));
  // Prints the version, the machine and the yardsticks.
  void PrintFacts() const;
  // Prints the line on stdout, with a heading before it if the columns change.
  void Add(const Line& line);

  // Returns the facts and "rows": an object for each line, with quartiles and counts of costs.
  Json ToJson() const;
  Status WriteJson(const std::string& path) const;
  Status WriteCsv(const std::string& path) const;
  // Returns the costs to compare, of all lines that have one.
  std::vector<ReportedCost> Costs() const;
  std::string scenario() const { return facts_["scenario"].get<std::string>(); }

 private:
  Json facts_;
  std::vector<Line> lines_;
  std::vector<std::string> heading_;  // heading of the last printed line
};

// Reads the lines of a report from a file. Returns kInput if the file is not a report of this
// scenario.
StatusOr<JsonNode> ReadRows(const std::string& path, const std::string& scenario);
// Prints the cost of each line next to that of the line with equal keys among `rows`, which were
// read from `path`. A line is slower if its cost is worse by more than `tolerance`, a share from 0
// to 1. If both reports have its share of the roof, that must be worse as well. Returns kInternal
// if a line is slower, kInput if no line is among the rows.
Status CompareReports(const Report& report, const JsonNode& rows, const std::string& path,
                      double tolerance);

}  // namespace kuiper::tools
