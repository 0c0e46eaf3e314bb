// Small plots as SVG, readable on light and dark pages.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace kuiper::tools {

struct SvgPanel {
  std::string title, x_label, y_label;
  std::vector<std::pair<double, double>> points;
  bool is_line = true;  // false: dots
};

// The panels beside each other, two in a row; the axes begin at zero.
std::string SvgPlot(const std::vector<SvgPanel>& panels);
// (value, share of the values that are not above it), ascending.
std::vector<std::pair<double, double>> Distribution(std::vector<double> values);

}  // namespace kuiper::tools
