#include "tools/svg_plot.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace kuiper::tools {
namespace {

constexpr int kWidth = 420, kHeight = 280;  // of a panel
constexpr int kLeft = 56, kRight = 16, kTop = 32, kBottom = 44;
constexpr size_t kMostPoints = 1000;  // of a line: more cannot be seen

constexpr const char* kStyle =
    "<style>text{font:12px sans-serif;fill:#333}.t{font-weight:bold}"
    ".a{stroke:#999;stroke-width:1}.l{fill:none;stroke:#1668b8;stroke-width:1.5}.d{fill:#1668b8}"
    "@media (prefers-color-scheme:dark){text{fill:#ddd}.l{stroke:#6db3f2}.d{fill:#6db3f2}}"
    "</style>\n";

std::string Number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g", value);
  return text;
}

std::string Escaped(const std::string& text) {
  std::string escaped;
  for (const char c : text) {
    escaped += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '"' ? "&quot;" : std::string(1, c);
  }
  return escaped;
}

// 1, 2 or 5 times a power of ten: about four of them make `largest`.
double TickStep(double largest) {
  if (!(largest > 0)) return 1;
  const double power = std::pow(10, std::floor(std::log10(largest / 4)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power * 5 >= largest) return factor * power;
  }
  return 10 * power;
}

std::string Text(double x, double y, const char* anchor, const std::string& text,
                 const std::string& more = "") {
  return "<text x=\"" + Number(x) + "\" y=\"" + Number(y) + "\" text-anchor=\"" + anchor + "\"" +
         more + ">" + Escaped(text) + "</text>\n";
}

std::string Line(double x1, double y1, double x2, double y2) {
  return "<line class=\"a\" x1=\"" + Number(x1) + "\" y1=\"" + Number(y1) + "\" x2=\"" +
         Number(x2) + "\" y2=\"" + Number(y2) + "\"/>\n";
}

// Where a panel's values lie on the page.
struct Frame {
  double left, bottom, x_scale, y_scale;
  double X(double value) const { return left + value * x_scale; }
  double Y(double value) const { return bottom - value * y_scale; }
};

std::string Curve(const SvgPanel& panel, const Frame& frame) {
  std::string text;
  const size_t step = panel.is_line ? panel.points.size() / kMostPoints + 1 : 1;
  if (panel.is_line) text += "<polyline class=\"l\" points=\"";
  for (size_t i = 0; i < panel.points.size(); ++i) {
    if (i % step != 0 && i + 1 != panel.points.size()) continue;
    const std::string x = Number(frame.X(panel.points[i].first));
    const std::string y = Number(frame.Y(panel.points[i].second));
    text += panel.is_line ? x + "," + y + " "
                          : "<circle class=\"d\" cx=\"" + x + "\" cy=\"" + y + "\" r=\"2\"/>\n";
  }
  return panel.is_line ? text + "\"/>\n" : text;
}

std::string PanelAt(const SvgPanel& panel, double left, double top) {
  double x_max = 0, y_max = 0;
  for (const auto& [x, y] : panel.points) {
    x_max = std::max(x_max, x);
    y_max = std::max(y_max, y);
  }
  const double x_step = TickStep(x_max), y_step = TickStep(y_max);
  x_max = std::max(x_max, x_step);
  y_max = std::max(y_max, y_step);
  const double width = kWidth - kLeft - kRight, height = kHeight - kTop - kBottom;
  const Frame frame{left + kLeft, top + kHeight - kBottom, width / x_max, height / y_max};
  std::string text = Text(frame.left, top + 20, "start", panel.title, " class=\"t\"");
  text += Line(frame.left, frame.bottom, frame.left + width, frame.bottom);
  text += Line(frame.left, frame.bottom, frame.left, frame.bottom - height);
  for (double x = 0; x <= x_max * 1.0001; x += x_step) {
    text += Line(frame.X(x), frame.bottom, frame.X(x), frame.bottom + 4);
    text += Text(frame.X(x), frame.bottom + 17, "middle", Number(x));
  }
  for (double y = 0; y <= y_max * 1.0001; y += y_step) {
    text += Line(frame.left - 4, frame.Y(y), frame.left, frame.Y(y));
    text += Text(frame.left - 7, frame.Y(y) + 4, "end", Number(y));
  }
  text += Text(frame.left + width / 2, top + kHeight - 8, "middle", panel.x_label);
  text += Text(frame.left + width, top + 20, "end", panel.y_label);
  return text + Curve(panel, frame);
}

}  // namespace

std::string SvgPlot(const std::vector<SvgPanel>& panels) {
  const size_t rows = (panels.size() + 1) / 2;
  const std::string width = std::to_string(2 * kWidth);
  const std::string height = std::to_string(rows * kHeight);
  std::string text = "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"" + width + "\" height=\"" +
                     height + "\" viewBox=\"0 0 " + width + " " + height + "\">\n" + kStyle;
  for (size_t i = 0; i < panels.size(); ++i) {
    text += PanelAt(panels[i], static_cast<double>(i % 2) * kWidth,
                    static_cast<double>(i / 2) * kHeight);
  }
  return text + "</svg>\n";
}

std::vector<std::pair<double, double>> Distribution(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  std::vector<std::pair<double, double>> points;
  for (size_t i = 0; i < values.size(); ++i) {
    points.emplace_back(values[i], static_cast<double>(i + 1) / static_cast<double>(values.size()));
  }
  return points;
}

}  // namespace kuiper::tools
