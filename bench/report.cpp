#include "bench/report.h"

#include <algorithm>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <fstream>

#include "kuiper/base/append_file.h"

namespace kuiper::tools {
namespace {

std::string Number(double value, int digits) {
  char text[64];
  std::snprintf(text, sizeof(text), "%.*f", digits, value);
  return text;
}

std::string Padded(const std::string& text, size_t width, bool left) {
  const std::string space(width > text.size() ? width - text.size() : 0, ' ');
  return left ? text + space : space + text;
}

// Returns the quantile of sorted values at `share`, interpolated between neighbours.
double Quantile(const std::vector<double>& sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto i = static_cast<size_t>(at);
  const double next = sorted[std::min(i + 1, sorted.size() - 1)];
  return sorted[i] + (at - std::floor(at)) * (next - sorted[i]);
}

Status WriteText(const std::string& path, const std::string& text) {
  std::ofstream out(path);
  out << text;
  return out.flush() ? OkStatus() : WriteFailed(path);
}

std::string CsvText(const Json& value) {
  if (value.is_null()) return "";
  if (!value.is_string()) return value.dump();
  std::string quoted = "\"";
  for (const char c : value.get<std::string>()) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

}  // namespace

Spread SpreadOf(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  return {Quantile(values, 0.5), Quantile(values, 0.25), Quantile(values, 0.75),
          static_cast<int>(values.size())};
}

double Median(std::vector<double> values) {
  return SpreadOf(std::move(values)).median;
}

Line& Line::Key(std::string name, std::string value) {
  cells_.push_back({std::move(name), Kind::kKey, std::move(value)});
  return *this;
}

Line& Line::Key(std::string name, int64_t value) {
  cells_.push_back({std::move(name), Kind::kKey, value});
  return *this;
}

Line& Line::Cost(std::string name, const Spread& value, int digits) {
  cells_.push_back({std::move(name), Kind::kCost, value, digits});
  return *this;
}

Line& Line::Figure(std::string name, std::optional<double> value, int digits) {
  cells_.push_back({std::move(name), Kind::kFigure, value, digits});
  return *this;
}

Line& Line::Share(std::string name, std::optional<double> value, int digits) {
  cells_.push_back({std::move(name), Kind::kShare, value, digits});
  return *this;
}

Line& Line::Ratio(std::string name, std::optional<double> value) {
  cells_.push_back({std::move(name), Kind::kRatio, value, 3});
  return *this;
}

std::vector<std::string> Line::Texts(const Cell& cell) {
  if (const auto* text = std::get_if<std::string>(&cell.value)) return {*text};
  if (const auto* number = std::get_if<int64_t>(&cell.value)) return {std::to_string(*number)};
  if (const auto* spread = std::get_if<Spread>(&cell.value)) {
    const double distance = (spread->high - spread->low) / spread->median;
    return {Number(spread->median, cell.digits),
            spread->median > 0 ? Number(100 * distance, 1) + "%" : "-"};
  }
  const auto& value = std::get<std::optional<double>>(cell.value);
  if (!value.has_value()) return {"-"};
  const bool share = cell.kind == Kind::kShare;
  const char* unit = share ? "%" : cell.kind == Kind::kRatio ? "x" : "";
  return {Number(*value * (share ? 100 : 1), cell.digits) + unit};
}

Report::Report(std::string scenario) : facts_(Json::object()) {
  facts_["scenario"] = std::move(scenario);
}

void Report::Set(const std::string& name, Json value) {
  facts_[name] = std::move(value);
}

void Report::Print(const char* format, ...) {
  va_list values;
  va_start(values, format);
  std::vprintf(format, values);
  va_end(values);
  heading_.clear();
}

void Report::PrintFacts() const {
  const auto number = [](const Json& value) { return Number(value.get<double>(), 1); };
  std::string machine;
  const Json host = facts_.value("machine", Json::object());
  for (const auto& [name, value] : host.items()) {
    if (!machine.empty()) machine += ", ";
    machine += name + " " +
               (value.is_string()         ? value.get<std::string>()
                : value.is_number_float() ? number(value)
                                          : value.dump());
  }
  std::printf("%s\nmachine: %s\n", facts_.value("version", "").c_str(), machine.c_str());
  if (facts_.contains("other_load")) {
    std::printf("other programs took %.0f %% of the CPUs meanwhile\n",
                100 * facts_["other_load"].get<double>());
  }
  const Json yardsticks = facts_.value("yardsticks", Json::object());
  for (const auto& [name, value] : yardsticks.items()) {
    if (value.is_object()) {
      std::printf("%s: %s, quartiles %s and %s, from %s to %s in %s bursts\n", name.c_str(),
                  number(value["median"]).c_str(), number(value["low"]).c_str(),
                  number(value["high"]).c_str(), number(value["least"]).c_str(),
                  number(value["most"]).c_str(), value["bursts"].dump().c_str());
    } else {
      std::printf("%s: %s\n", name.c_str(),
                  value.is_number() ? number(value).c_str() : value.dump().c_str());
    }
  }
}

void Report::Add(const Line& line) {
  std::vector<std::string> heading, texts;
  std::vector<bool> left;
  for (const Line::Cell& cell : line.cells_) {
    heading.push_back(cell.name);
    for (std::string& text : Line::Texts(cell)) texts.push_back(std::move(text));
    if (cell.kind == Line::Kind::kCost) heading.emplace_back("spread");
    while (left.size() < texts.size()) {
      left.push_back(std::holds_alternative<std::string>(cell.value));
    }
  }
  const auto print = [&](const std::vector<std::string>& words) {
    std::string out;
    for (size_t i = 0; i < words.size(); ++i) {
      const size_t width = std::max<size_t>(heading[i].size(), left[i] ? 10 : 8);
      if (i > 0) out += ' ';
      out += Padded(words[i], width, left[i]);
    }
    std::printf("%s\n", out.c_str());
  };
  if (heading != heading_) print(heading);
  heading_ = heading;
  print(texts);
  std::fflush(stdout);
  lines_.push_back(line);
}

Json Report::ToJson() const {
  Json json = facts_;
  Json rows = Json::array();
  for (const Line& line : lines_) {
    Json row = Json::object();
    for (const Line::Cell& cell : line.cells_) {
      if (const auto* text = std::get_if<std::string>(&cell.value)) {
        row[cell.name] = *text;
      } else if (const auto* number = std::get_if<int64_t>(&cell.value)) {
        row[cell.name] = *number;
      } else if (const auto* spread = std::get_if<Spread>(&cell.value)) {
        row[cell.name] = spread->median;
        row[cell.name + kQuartiles] = {spread->low, spread->high};
        row["samples"] = spread->count;
      } else {
        const auto& value = std::get<std::optional<double>>(cell.value);
        row[cell.name] = value.has_value() ? Json(*value) : Json(nullptr);
      }
    }
    rows.push_back(std::move(row));
  }
  json["rows"] = std::move(rows);
  return json;
}

Status Report::WriteJson(const std::string& path) const {
  return WriteText(path, ToJson().dump(2) + "\n");
}

Status Report::WriteCsv(const std::string& path) const {
  std::string text, last;
  const Json json = ToJson();
  for (const Json& row : json["rows"]) {
    std::string heading, values;
    const auto add = [&](const std::string& name, const Json& value) {
      if (!heading.empty()) {
        heading += ',';
        values += ',';
      }
      heading += name;
      values += CsvText(value);
    };
    for (const auto& [name, value] : row.items()) {
      if (value.is_array()) {
        add(name + "_low", value[0]);
        add(name + "_high", value[1]);
      } else {
        add(name, value);
      }
    }
    if (heading != last) text += heading + "\n";
    last = heading;
    text += values + "\n";
  }
  return WriteText(path, text);
}

std::vector<ReportedCost> Report::Costs() const {
  std::vector<ReportedCost> costs;
  for (const Line& line : lines_) {
    ReportedCost cost;
    for (const Line::Cell& cell : line.cells_) {
      const auto* number = std::get_if<std::optional<double>>(&cell.value);
      if (const auto* text = std::get_if<std::string>(&cell.value)) {
        cost.keys.emplace_back(cell.name, *text);
      } else if (const auto* key = std::get_if<int64_t>(&cell.value)) {
        cost.keys.emplace_back(cell.name, std::to_string(*key));
      } else if (number != nullptr && cell.name == kOfRoof) {
        cost.of_roof = *number;
      } else if (const auto* spread = std::get_if<Spread>(&cell.value)) {
        cost.name = cell.name;
        cost.value = *spread;
        cost.digits = cell.digits;
      }
    }
    if (!cost.name.empty()) costs.push_back(std::move(cost));
  }
  return costs;
}

}  // namespace kuiper::tools
