// The charts that study_plots draws: axes, bars and lines.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "plan/simulator/study/svg.h"

namespace clairfs {

/// Where a chart goes, axis labels and legend not included.
struct ChartArea {
  double left = 0;
  double top = 0;
  double width = 0;
  double height = 0;

  double right() const { return left + width; }
  double bottom() const { return top + height; }
};

enum class LegendMark { area, line, dashes };

struct LegendEntry {
  std::string label;
  std::string colour;
  LegendMark mark = LegendMark::area;
};

/// Of what is drawn as a bound, in every chart.
inline constexpr std::string_view kBoundColour = "#222222";
/// Of clairfs, and of nothing else in a chart of lines.
inline constexpr std::string_view kOwnColour = "#0072B2";

/// Whole numbers with a comma between thousands, fractions with six digits, huge ones as powers of ten.
std::string number_text(double value);

/// Of the other series: colours that differ for the colour-blind too (M. Okabe and K. Ito, "Color Universal
/// Design", 2008); they repeat after the seventh.
std::string series_colour(size_t series);

/// Entries in a column from `at` down.
void draw_legend(Svg& svg, Point at, const std::vector<LegendEntry>& entries);

struct Bar {
  std::string label;
  std::vector<double> parts;  ///< from the axis on
  std::string note;           ///< behind the bar; also where there is none
};
/// Horizontal stacked bars, longest value at the right edge; `colours` by part. A dashed line marks `mark`,
/// if above 0; the note of a bar without parts stands behind it.
void draw_stacked_bars(Svg& svg, const ChartArea& area, const std::vector<Bar>& bars,
                       const std::vector<std::string>& colours, double mark, const std::string& axis_label);

/// The axis that lines are drawn over.
struct LineAxis {
  std::vector<std::string> labels;  ///< of the points; none: round numbers
  std::vector<double> places{};     ///< of the points, at least 0, on an axis from 0 on; none: equally spaced
};

struct Series {
  std::string label;
  std::vector<double> values;  ///< by point; NaN where there is none
  bool bound = false;          ///< dashed, above all others
  bool own = false;            ///< clairfs: thick and in its colour, above all but bounds
};
/// Lines over a vertical axis from 0 on, with the legend on the right. Where lines lie on each other, the
/// marks of a point stand side by side, so that each is seen.
void draw_lines(Svg& svg, const ChartArea& area, const LineAxis& axis, std::vector<Series> series,
                const std::string& x_label, const std::string& y_label);

/// Bars over numbers from `first` on, and a line over the same.
void draw_histogram(Svg& svg, const ChartArea& area, size_t first, const std::vector<double>& bars,
                    const std::vector<double>& line, const std::string& x_label, const std::string& y_label);

}  // namespace clairfs
