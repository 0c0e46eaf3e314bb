// Compares a report with an earlier one, line by line.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "bench/report.h"
#include "kuiper/base/json.h"
#include "kuiper/base/text.h"

namespace kuiper::tools {
namespace {

constexpr size_t kMaxReport = size_t{64} << 20;

bool HasKeys(const JsonNode& row, const ReportedCost& cost) {
  return std::all_of(cost.keys.begin(), cost.keys.end(), [&](const auto& key) {
    const JsonNode* value = row.Find(key.first);
    return value != nullptr && value->text == key.second;
  });
}

std::optional<double> NumberOf(const JsonNode& row, const std::string& name) {
  const JsonNode* value = row.Find(name);
  return value == nullptr ? std::nullopt : value->AsDouble();
}

// Returns the cost of the first row with these keys; its count is 0 if there is none.
Spread FindCost(const JsonNode& rows, const ReportedCost& cost, std::optional<double>* of_roof) {
  for (const JsonNode& row : rows.items) {
    if (!HasKeys(row, cost)) continue;
    const std::optional<double> median = NumberOf(row, cost.name);
    const JsonNode* quartiles = row.Find(cost.name + kQuartiles);
    if (!median || *median <= 0 || quartiles == nullptr || quartiles->items.size() != 2) break;
    *of_roof = NumberOf(row, kOfRoof);
    return {*median, quartiles->items[0].AsDouble().value_or(*median),
            quartiles->items[1].AsDouble().value_or(*median), 1};
  }
  return {};
}

// Adds the line to `comparison`; returns true if it is slower.
bool CompareLine(const ReportedCost& cost, const Spread& before, std::optional<double> roof_before,
                 double tolerance, Report* comparison) {
  const double speed = before.median / cost.value.median;
  std::optional<double> of_roof;
  if (cost.of_roof && roof_before && *roof_before > 0) of_roof = *cost.of_roof / *roof_before;
  const bool is_slower = speed < 1 - tolerance && of_roof.value_or(speed) < 1 - tolerance;
  Line line;
  for (const auto& [name, value] : cost.keys) line.Key(name, value);
  line.Figure("old_" + cost.name, before.median, cost.digits)
      .Cost(cost.name, cost.value, cost.digits)
      .Ratio("speed", speed)
      .Ratio("low", before.low / cost.value.high)
      .Ratio("high", before.high / cost.value.low)
      .Ratio(kOfRoof, of_roof)
      .Key("verdict", is_slower ? "slower" : "ok");
  comparison->Add(line);
  return is_slower;
}

}  // namespace

StatusOr<JsonNode> ReadRows(const std::string& path, const std::string& scenario) {
  KU_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path, kMaxReport, StatusCode::kInput));
  KU_ASSIGN_OR_RETURN(const JsonNode report, ParseJson(text, StatusCode::kInput, path));
  const JsonNode *rows = report.Find("rows"), *of = report.Find("scenario");
  if (rows == nullptr || !rows->IsArray() || of == nullptr || of->text != scenario) {
    return Status(StatusCode::kInput, path + " is no report of --scenario " + scenario);
  }
  return *rows;
}

Status CompareReports(const Report& report, const JsonNode& rows, const std::string& path,
                      double tolerance) {
  std::printf("\nbeside %s: speed is old / new, low and high from the quartiles of both\n",
              path.c_str());
  Report comparison("comparison");
  int compared = 0, slower = 0;
  for (const ReportedCost& cost : report.Costs()) {
    std::optional<double> of_roof;
    const Spread before = FindCost(rows, cost, &of_roof);
    if (before.count == 0) continue;
    ++compared;
    slower += static_cast<int>(CompareLine(cost, before, of_roof, tolerance, &comparison));
  }
  if (compared == 0) return Status(StatusCode::kInput, path + " has none of these rows");
  if (slower == 0) return OkStatus();
  char percent[32];
  std::snprintf(percent, sizeof(percent), "%g", 100 * tolerance);
  return Status(StatusCode::kInternal, std::to_string(slower) + " of " + std::to_string(compared) +
                                           " rows are more than " + percent + " % slower than in " +
                                           path);
}

}  // namespace kuiper::tools
