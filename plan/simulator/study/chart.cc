#include "plan/simulator/study/chart.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace clairfs {
namespace {

constexpr std::string_view kGrid = "#dddddd";
constexpr int kTicks = 6;
constexpr size_t kMostMarkedPoints = 40;  // of a line that are marked: more would run into each other

std::string number_text(double value) {
  return value >= 1e7 ? fmt::format("{:.3g}", value) : fmt::format("{:.6g}", value);
}

/// A vertical axis: the values at its ends.
struct Scale {
  double first = 0;
  double last = 1;

  double y(const ChartArea& area, double value) const {
    return area.bottom() - (value - first) / (last - first) * area.height;
  }
};

/// The axis with its grid. It starts at 0 unless all values are close to each other.
Scale draw_vertical_axis(Svg& svg, const ChartArea& area, double least, double most,
                         const std::string& label) {
  std::vector<double> ticks = axis_ticks(most, kTicks);
  if (least > most / 2 && least < most) {
    const double step = axis_ticks(most - least, kTicks)[1];
    const double first = std::floor(least / step) * step;
    ticks.clear();
    for (int at = 0; ticks.empty() || ticks.back() < most; ++at) ticks.push_back(first + at * step);
  }
  const Scale scale{ticks.front(), ticks.back()};
  for (const double tick : ticks) {
    const double y = scale.y(area, tick);
    svg.line({area.left, y}, {area.right(), y}, {.colour = kGrid});
    svg.text({area.left - 6, y + 4}, number_text(tick), {.size = 11, .anchor = Anchor::kEnd});
  }
  svg.text({area.left, area.top - 10}, label, {.size = 11, .anchor = Anchor::kMiddle});
  return scale;
}

/// Whether two lines lie on each other at most places.
bool coincide(const Series& one, const Series& other, const Scale& scale) {
  const double near = (scale.last - scale.first) / 100;
  const size_t places = std::min(one.values.size(), other.values.size());
  size_t together = 0;
  for (size_t place = 0; place < places; ++place) {
    if (std::abs(one.values[place] - other.values[place]) < near) ++together;
  }
  return 2 * together > places;
}

/// Pixels between the points of a category.
double point_distance(const std::vector<Series>& series, double column, const Scale& scale) {
  constexpr double kMost = 5;
  for (size_t at = 0; at < series.size(); ++at) {
    for (size_t other = at + 1; other < series.size(); ++other) {
      if (series[at].bound || series[other].bound || !coincide(series[at], series[other], scale)) continue;
      return std::min(kMost, 0.9 * column / static_cast<double>(series.size()));
    }
  }
  return 0;
}

void draw_horizontal_label(Svg& svg, const ChartArea& area, const std::string& label) {
  svg.text({area.left + area.width / 2, area.bottom() + 34}, label, {.anchor = Anchor::kMiddle});
}

}  // namespace

std::string series_colour(size_t series) {
  static constexpr std::array kColours = {"#0072B2", "#D55E00", "#009E73", "#E69F00",
                                          "#CC79A7", "#56B4E9", "#000000", "#B8A800"};
  return kColours[series % kColours.size()];
}

void draw_legend(Svg& svg, Point at, const std::vector<LegendEntry>& entries) {
  for (const LegendEntry& entry : entries) {
    if (entry.mark == LegendMark::kArea) {
      svg.rectangle({at.x, at.y - 10}, 14, 11, entry.colour);
    } else {
      const bool dashed = entry.mark == LegendMark::kDashes;
      svg.line({at.x, at.y - 4}, {at.x + 14, at.y - 4},
               {.colour = entry.colour, .width = dashed ? 2.0 : 3.0, .dashed = dashed});
    }
    svg.text({at.x + 20, at.y}, entry.label, {});
    at.y += 18;
  }
}

void draw_stacked_bars(Svg& svg, const ChartArea& area, const std::vector<Bar>& bars,
                       const std::vector<std::string>& colours, double mark, const std::string& axis_label) {
  double most = mark;
  for (const Bar& bar : bars) {
    double sum = 0;
    for (const double part : bar.parts) sum += part;
    most = std::max(most, sum);
  }
  const std::vector<double> ticks = axis_ticks(most, kTicks);
  const auto x_of = [&](double value) { return area.left + value / ticks.back() * area.width; };
  for (const double tick : ticks) {
    svg.line({x_of(tick), area.top}, {x_of(tick), area.bottom()}, {.colour = kGrid});
    svg.text({x_of(tick), area.bottom() + 16}, number_text(tick), {.size = 11, .anchor = Anchor::kMiddle});
  }
  const double row = area.height / static_cast<double>(std::max<size_t>(bars.size(), 1));
  for (size_t at = 0; at < bars.size(); ++at) {
    const double top = area.top + row * (static_cast<double>(at) + 0.15);
    double value = 0;
    for (size_t part = 0; part < bars[at].parts.size(); ++part) {
      const double next = value + bars[at].parts[part];
      svg.rectangle({x_of(value), top}, x_of(next) - x_of(value), row * 0.7, colours[part]);
      value = next;
    }
    svg.text({area.left - 8, top + row * 0.35 + 4}, bars[at].label, {.anchor = Anchor::kEnd});
    const double end = x_of(bars[at].parts.empty() ? mark : value);
    svg.text({end + 6, top + row * 0.35 + 4}, bars[at].note, {.size = 11});
  }
  if (mark > 0) svg.line({x_of(mark), area.top}, {x_of(mark), area.bottom()}, {.width = 1.5, .dashed = true});
  svg.line({area.left, area.top}, {area.left, area.bottom()}, {});
  draw_horizontal_label(svg, area, axis_label);
}

void draw_lines(Svg& svg, const ChartArea& area, const std::vector<std::string>& categories,
                const std::vector<Series>& series, const std::string& x_label, const std::string& y_label) {
  double most = 0;
  double least = std::numeric_limits<double>::infinity();
  for (const Series& one : series) {
    for (const double value : one.values) {
      if (std::isnan(value)) continue;
      most = std::max(most, value);
      least = std::min(least, value);
    }
  }
  const Scale scale = draw_vertical_axis(svg, area, least, most, y_label);
  const double column = area.width / static_cast<double>(std::max<size_t>(categories.size(), 1));
  const auto x_of = [&](size_t category) {
    return area.left + column * (static_cast<double>(category) + 0.5);
  };
  const double distance = point_distance(series, column, scale);
  // Not more labels than fit beside each other.
  const size_t every = std::max<size_t>(1, (categories.size() + 19) / 20);
  for (size_t at = 0; at < categories.size(); at += every) {
    svg.text({x_of(at), area.bottom() + 16}, categories[at], {.size = 11, .anchor = Anchor::kMiddle});
  }
  std::vector<LegendEntry> legend;
  std::vector<std::vector<Point>> bounds;
  size_t colours = 0;
  for (size_t at = 0; at < series.size(); ++at) {
    const double aside = (static_cast<double>(at) - static_cast<double>(series.size() - 1) / 2) * distance;
    std::vector<Point> points;
    for (size_t category = 0; category < series[at].values.size(); ++category) {
      const double value = series[at].values[category];
      if (!std::isnan(value)) points.push_back({x_of(category) + aside, scale.y(area, value)});
    }
    if (series[at].bound) {
      bounds.push_back(points);
      legend.push_back({series[at].label, std::string(kBoundColour), LegendMark::kDashes});
      continue;
    }
    // After the eighth line colours repeat, so that the lines are dashed.
    const bool dashed = colours >= 8;
    const std::string colour = series_colour(colours++);
    svg.polyline(points, {.colour = colour, .width = distance > 0 ? 1.0 : 2.0, .dashed = dashed});
    if (points.size() <= kMostMarkedPoints) {
      for (const Point& point : points) svg.circle(point, 3, colour);
    }
    legend.push_back({series[at].label, colour, dashed ? LegendMark::kDashes : LegendMark::kLine});
  }
  for (const auto& points : bounds) {
    svg.polyline(points, {.colour = kBoundColour, .width = 1.5, .dashed = true});
  }
  svg.line({area.left, area.bottom()}, {area.right(), area.bottom()}, {});
  draw_horizontal_label(svg, area, x_label);
  draw_legend(svg, {area.right() + 20, area.top + 10}, legend);
}

void draw_histogram(Svg& svg, const ChartArea& area, size_t first, const std::vector<double>& bars,
                    const std::vector<double>& line, const std::string& x_label, const std::string& y_label) {
  double most = 0;
  for (const double value : bars) most = std::max(most, value);
  for (const double value : line) most = std::max(most, value);
  const Scale scale = draw_vertical_axis(svg, area, 0, most, y_label);
  const double column = area.width / static_cast<double>(std::max<size_t>(bars.size(), 1));
  const auto y_of = [&](double value) { return scale.y(area, value); };
  const size_t every = std::max<size_t>(1, (bars.size() + 19) / 20);
  std::vector<Point> points;
  for (size_t at = 0; at < bars.size(); ++at) {
    const double left = area.left + column * static_cast<double>(at);
    svg.rectangle({left + column * 0.1, y_of(bars[at])}, column * 0.8, area.bottom() - y_of(bars[at]),
                  "#56B4E9");
    if (at < line.size()) points.push_back({left + column / 2, y_of(line[at])});
    if (at % every == 0) {
      svg.text({left + column / 2, area.bottom() + 16}, std::to_string(first + at),
               {.size = 11, .anchor = Anchor::kMiddle});
    }
  }
  svg.polyline(points, {.colour = "#D55E00", .width = 2});
  if (points.size() <= kMostMarkedPoints) {
    for (const Point& point : points) svg.circle(point, 3, "#D55E00");
  }
  svg.line({area.left, area.bottom()}, {area.right(), area.bottom()}, {});
  draw_horizontal_label(svg, area, x_label);
  draw_legend(svg, {area.right() + 20, area.top + 10},
              {{"counted", "#56B4E9"}, {"binomial", "#D55E00", LegendMark::kLine}});
}

}  // namespace clairfs
