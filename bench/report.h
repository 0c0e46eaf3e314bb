// What kuiper_bench reports: facts about what ran and on what, and lines of figures, printed as
// they come and kept for JSON, CSV and a comparison with an earlier report. Measures nothing.
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
  double median = 0, low = 0, high = 0;  // the quartiles around it
  int count = 0;                         // 0: it is not known

  // Of the same figure in another unit.
  Spread Times(double factor) const {
    return {median * factor, low * factor, high * factor, count};
  }
};

Spread SpreadOf(std::vector<double> values);
double Median(std::vector<double> values);

// One line: what it is of, and its figures.
class Line {
 public:
  // Lines of two reports with the same keys are compared.
  Line& Key(std::string name, std::string value);
  Line& Key(std::string name, int64_t value);
  // What is compared: smaller is better. The column "spread" has the distance of the quartiles in
  // percent of the median.
  Line& Cost(std::string name, const Spread& value, int digits = 2);
  // Absent: nothing measures it here.
  Line& Figure(std::string name, std::optional<double> value, int digits = 1);
  // A part of a whole, printed in percent, with digits behind the point.
  Line& Share(std::string name, std::optional<double> value, int digits = 1);
  // A ratio, printed with an "x".
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

// The fields of a row in JSON that other reports are compared by.
inline constexpr const char* kQuartiles = "_quartiles";  // the end of the name
inline constexpr const char* kOfRoof = "of_roof";

// A line's cost, and what tells the line apart.
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

  // Facts stand in the order in which they are set. Objects print as a line of their own.
  void Set(const std::string& name, Json value);
  // Prints a line of text between tables.
  void Print(const char* format, ...) __attribute__((format(printf, 2, 3)));
  // Prints what the version, the machine and the yardsticks were.
  void PrintFacts() const;
  // Prints the line on stdout, below a heading where the columns change.
  void Add(const Line& line);

  // The facts and "rows": an object for each line, with quartiles and counts of costs.
  Json ToJson() const;
  Status WriteJson(const std::string& path) const;
  Status WriteCsv(const std::string& path) const;
  // What is compared of each line that costs something.
  std::vector<ReportedCost> Costs() const;
  std::string scenario() const { return facts_["scenario"].get<std::string>(); }

 private:
  Json facts_;
  std::vector<Line> lines_;
  std::vector<std::string> heading_;  // of the last line that was printed
};

// The lines of a report in a file. kInput when the file is no report of this scenario.
StatusOr<JsonNode> ReadRows(const std::string& path, const std::string& scenario);
// Prints the cost of each line beside that of the line with the same keys among `rows`, which come
// from `path`. A line is slower when its cost, and its share of the roof where both reports know
// it, are worse by more than `tolerance`, a part of 1. kInternal when one is, kInput when no line
// is among the rows.
Status CompareReports(const Report& report, const JsonNode& rows, const std::string& path,
                      double tolerance);

}  // namespace kuiper::tools
