#include "plan/simulator/study/chart.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

namespace clairfs {
namespace {

constexpr std::string_view kGrid = "#dddddd";
constexpr int kTicks = 6;
constexpr size_t kMostMarkedPoints = 40;  // of a line that are marked: more would run into each other

// The axis from 0 on, with its grid; returns the value at its end.
double draw_vertical_axis(Svg& svg, const ChartArea& area, double most, const std::string& label) {
  const std::vector<double> ticks = axis_ticks(most, kTicks);
  for (const double tick : ticks) {
    const double y = area.bottom() - tick / ticks.back() * area.height;
    svg.line({area.left, y}, {area.right(), y}, {.colour = kGrid});
    svg.text({area.left - 6, y + 4}, number_text(tick), {.size = 11, .anchor = Anchor::end});
  }
  svg.text({area.left, area.top - 10}, label, {.size = 11, .anchor = Anchor::middle});
  return ticks.back();
}

// Whether two lines lie on each other at most places.
bool coincide(const Series& one, const Series& other, double last) {
  const double near = last / 100;
  const size_t places = std::min(one.values.size(), other.values.size());
  size_t together = 0;
  for (size_t place = 0; place < places; ++place) {
    if (std::abs(one.values[place] - other.values[place]) < near) ++together;
  }
  return 2 * together > places;
}

// Pixels between the marks of a point. `column`: between points; `last`: the value at the end of the axis.
double mark_distance(const std::vector<Series>& series, double column, double last) {
  constexpr double kMost = 5;
  for (size_t at = 0; at < series.size(); ++at) {
    for (size_t other = at + 1; other < series.size(); ++other) {
      if (series[at].bound || series[other].bound || !coincide(series[at], series[other], last)) continue;
      return std::min(kMost, 0.9 * column / static_cast<double>(series.size()));
    }
  }
  return 0;
}

void draw_horizontal_label(Svg& svg, const ChartArea& area, const std::string& label) {
  svg.text({area.left + area.width / 2, area.bottom() + 34}, label, {.anchor = Anchor::middle});
}

// From the left edge of an area to each point.
std::vector<double> places_of(const LineAxis& axis, const ChartArea& area) {
  std::vector<double> places;
  if (axis.places.empty()) {
    const double column = area.width / static_cast<double>(std::max<size_t>(axis.labels.size(), 1));
    for (size_t at = 0; at < axis.labels.size(); ++at)
      places.push_back(column * (static_cast<double>(at) + 0.5));
    return places;
  }
  const double most = *std::max_element(axis.places.begin(), axis.places.end());
  for (const double place : axis.places) places.push_back(most > 0 ? place / most * area.width : 0);
  return places;
}

// Labels at their points, as many as stand beside each other; else round numbers.
void draw_horizontal_axis(Svg& svg, const ChartArea& area, const LineAxis& axis,
                          const std::vector<double>& places) {
  const auto label = [&](double x, const std::string& words) {
    svg.text({area.left + x, area.bottom() + 16}, words, {.size = 11, .anchor = Anchor::middle});
  };
  svg.line({area.left, area.bottom()}, {area.right(), area.bottom()}, {});
  if (axis.labels.empty() && !axis.places.empty()) {
    const double most = *std::max_element(axis.places.begin(), axis.places.end());
    for (const double tick : axis_ticks(most, kTicks)) {
      if (tick <= most) label(most > 0 ? tick / most * area.width : 0, number_text(tick));
    }
  }
  constexpr double kApart = 28;  // pixels, of five characters
  double free_from = -kApart;
  for (size_t at = 0; at < std::min(places.size(), axis.labels.size()); ++at) {
    if (places[at] < free_from) continue;
    label(places[at], axis.labels[at]);
    free_from = places[at] + kApart;
  }
}

double least_gap(const std::vector<double>& places, double width) {
  double least = width;
  for (size_t at = 1; at < places.size(); ++at)
    least = std::min(least, std::abs(places[at] - places[at - 1]));
  return least;
}

struct Line {
  std::string colour;
  double width = 2;
  bool dashed = false;
  bool marked = false;
};

// How each series is drawn.
std::vector<Line> lines_of(const std::vector<Series>& series, bool side_by_side) {
  constexpr size_t kColours = 7;
  size_t others = 0;
  size_t own = 0;
  std::vector<Line> lines;
  for (const Series& one : series) {
    if (one.bound) {
      lines.push_back({std::string(kBoundColour), 1.5, true, false});
    } else if (one.own) {
      lines.push_back({std::string(kOwnColour), 3, own++ > 0, true});
    } else {
      lines.push_back({series_colour(others), side_by_side ? 1.0 : 2.0, others >= kColours, true});
      ++others;
    }
  }
  return lines;
}

}  // namespace

std::string number_text(double value) {
  if (value >= 1e15) return fmt::format("{:.3g}", value);
  if (value < 1000) return fmt::format("{:.6g}", value);
  std::string digits = fmt::format("{:.0f}", value);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

std::string series_colour(size_t series) {
  static constexpr std::array kColours = {"#D55E00", "#009E73", "#E69F00", "#CC79A7",
                                          "#56B4E9", "#000000", "#B8A800"};
  return kColours[series % kColours.size()];
}

void draw_legend(Svg& svg, Point at, const std::vector<LegendEntry>& entries) {
  for (const LegendEntry& entry : entries) {
    if (entry.mark == LegendMark::area) {
      svg.rectangle({at.x, at.y - 10}, 14, 11, entry.colour);
    } else {
      const bool dashed = entry.mark == LegendMark::dashes;
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
    svg.text({x_of(tick), area.bottom() + 16}, number_text(tick), {.size = 11, .anchor = Anchor::middle});
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
    svg.text({area.left - 8, top + row * 0.35 + 4}, bars[at].label, {.anchor = Anchor::end});
    const double end = x_of(bars[at].parts.empty() ? mark : value);
    svg.text({end + 6, top + row * 0.35 + 4}, bars[at].note, {.size = 11});
  }
  if (mark > 0) svg.line({x_of(mark), area.top}, {x_of(mark), area.bottom()}, {.width = 1.5, .dashed = true});
  svg.line({area.left, area.top}, {area.left, area.bottom()}, {});
  draw_horizontal_label(svg, area, axis_label);
}

void draw_lines(Svg& svg, const ChartArea& area, const LineAxis& axis, std::vector<Series> series,
                const std::string& x_label, const std::string& y_label) {
  // Later lines lie above earlier ones.
  std::stable_sort(series.begin(), series.end(), [](const Series& one, const Series& other) {
    return 2 * one.bound + one.own < 2 * other.bound + other.own;
  });
  double most = 0;
  for (const Series& one : series) {
    for (const double value : one.values) most = std::isnan(value) ? most : std::max(most, value);
  }
  const double last = draw_vertical_axis(svg, area, most, y_label);
  const std::vector<double> places = places_of(axis, area);
  draw_horizontal_axis(svg, area, axis, places);
  const double distance = mark_distance(series, least_gap(places, area.width), last);
  const std::vector<Line> lines = lines_of(series, distance > 0);
  std::vector<LegendEntry> legend;
  for (size_t at = 0; at < series.size(); ++at) {
    const Line& line = lines[at];
    const double middle = static_cast<double>(series.size() - 1) / 2;
    const double aside = series[at].bound ? 0 : (static_cast<double>(at) - middle) * distance;
    std::vector<Point> points;
    for (size_t place = 0; place < std::min(places.size(), series[at].values.size()); ++place) {
      const double value = series[at].values[place];
      if (std::isnan(value)) continue;
      points.push_back({area.left + places[place] + aside, area.bottom() - value / last * area.height});
    }
    svg.polyline(points, {.colour = line.colour, .width = line.width, .dashed = line.dashed});
    for (const Point& point : points) {
      if (line.marked && points.size() <= kMostMarkedPoints) svg.circle(point, 3, line.colour);
    }
    legend.push_back({series[at].label, line.colour, line.dashed ? LegendMark::dashes : LegendMark::line});
  }
  draw_horizontal_label(svg, area, x_label);
  draw_legend(svg, {area.right() + 20, area.top + 10}, legend);
}

void draw_histogram(Svg& svg, const ChartArea& area, size_t first, const std::vector<double>& bars,
                    const std::vector<double>& line, const std::string& x_label, const std::string& y_label) {
  double most = 0;
  for (const double value : bars) most = std::max(most, value);
  for (const double value : line) most = std::max(most, value);
  const double last = draw_vertical_axis(svg, area, most, y_label);
  const double column = area.width / static_cast<double>(std::max<size_t>(bars.size(), 1));
  const auto y_of = [&](double value) { return area.bottom() - value / last * area.height; };
  const size_t every = std::max<size_t>(1, (bars.size() + 19) / 20);
  std::vector<Point> points;
  for (size_t at = 0; at < bars.size(); ++at) {
    const double left = area.left + column * static_cast<double>(at);
    svg.rectangle({left + column * 0.1, y_of(bars[at])}, column * 0.8, area.bottom() - y_of(bars[at]),
                  "#56B4E9");
    if (at < line.size()) points.push_back({left + column / 2, y_of(line[at])});
    if (at % every == 0) {
      svg.text({left + column / 2, area.bottom() + 16}, std::to_string(first + at),
               {.size = 11, .anchor = Anchor::middle});
    }
  }
  svg.polyline(points, {.colour = "#D55E00", .width = 2});
  if (points.size() <= kMostMarkedPoints) {
    for (const Point& point : points) svg.circle(point, 3, "#D55E00");
  }
  svg.line({area.left, area.bottom()}, {area.right(), area.bottom()}, {});
  draw_horizontal_label(svg, area, x_label);
  draw_legend(svg, {area.right() + 20, area.top + 10},
              {{"counted", "#56B4E9"}, {"binomial", "#D55E00", LegendMark::line}});
}

}  // namespace clairfs
