#include "plan/simulator/study/plots.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "cache/base/units.h"
#include "plan/simulator/model/access_frequency.h"
#include "plan/simulator/study/chart.h"

namespace clairfs {
namespace {

constexpr double kWidth = 1000;
constexpr double kLeft = 170;        // for the policies' names
constexpr double kChartWidth = 560;  // the legend stands on its right
constexpr double kNote = 80;         // behind the longest bar, for its runtime
constexpr double kTitle = 50;        // above a chart
constexpr double kFoot = 60;         // below, for labels
constexpr double kBarRow = 26;
constexpr double kChartHeight = 260;
// Far from the mean nothing is to be seen: less than one sample in a thousand of the highest bar is left out.
constexpr double kTooSmall = 1e-3;

const std::vector<std::string> kPartColours = {"#999999", "#CC79A7", "#D55E00", "#E69F00", "#009E73"};
const std::vector<std::string> kPartNames = {"computing", "loading before the training",
                                             "waiting for the PFS", "waiting for peers",
                                             "waiting for own storage"};

// At least as high as the legend beside it.
double bars_height(size_t bars) {
  constexpr double kLegend = 116;
  return std::max(kBarRow * static_cast<double>(bars), kLegend);
}

void title(Svg& svg, double top, const std::string& words) {
  svg.text({20, top + 22}, words, {.size = 15, .bold = true});
}

// As exact as a bar can be read.
std::string seconds_text(double seconds) {
  return fmt::format("{:.{}f} s", seconds, seconds < 100 ? 2 : seconds < 1000 ? 1 : 0);
}

bool is_own(const Policy& policy) {
  return policy.name == "clairfs";
}

// What all points have in common of the job, for a title: ": 64 workers, 90 epochs, 1,281,167 samples".
std::string job_text(std::span<const StudyPoint> points) {
  std::string text;
  const auto add = [&](const char* one, const char* many, uint64_t (*figure)(const StudyPoint&)) {
    const uint64_t number = figure(points[0]);
    const bool common = std::all_of(points.begin(), points.end(),
                                    [&](const StudyPoint& point) { return figure(point) == number; });
    if (!common) return;
    text += fmt::format("{}{} {}", text.empty() ? ": " : ", ", number_text(static_cast<double>(number)),
                        number == 1 ? one : many);
  };
  add("worker", "workers", [](const StudyPoint& point) -> uint64_t { return point.scenario.workers; });
  add("epoch", "epochs", [](const StudyPoint& point) -> uint64_t { return point.scenario.epochs; });
  add("sample", "samples", [](const StudyPoint& point) { return point.samples; });
  return text;
}

// What the values of a sweep are, with their unit where they have one. `name`: as set_scenario_value().
std::string sweep_label(const Scenario& scenario, const std::string& name) {
  constexpr std::array<std::string_view, 6> kRates{"compute",     "preprocess", "network",
                                                   "pfs_network", "read",       "write"};
  constexpr const char* kMegabytes = ", MB where no unit is written";
  const bool storage = name == "staging" || std::any_of(scenario.classes.begin(), scenario.classes.end(),
                                                        [&](const auto& one) { return one.name == name; });
  if (storage) return name + " capacity" + kMegabytes;
  const std::string key = name.substr(name.rfind('.') + 1);  // npos + 1 is 0
  if (key == "capacity") return name + kMegabytes;
  return std::find(kRates.begin(), kRates.end(), key) == kRates.end() ? name : name + ", MB/s";
}

double runtime_chart(Svg& svg, double top, const StudyPoint& point) {
  std::vector<Bar> bars;
  for (const Outcome& o : point.outcomes) {
    if (!o.refusal.empty()) {
      bars.push_back({std::string(o.policy->title), {}, "not possible"});
      continue;
    }
    bars.push_back(
        {std::string(o.policy->title) + (o.policy->keeps_order ? "" : " *"),
         {o.critical.compute, o.preparation, o.critical.stall[0], o.critical.stall[1], o.critical.stall[2]},
         seconds_text(o.runtime)});
  }
  title(svg, top, fmt::format("{}: where the runtime goes{}", point.scenario.name, job_text({&point, 1})));
  const ChartArea area{kLeft, top + kTitle, kChartWidth, bars_height(bars.size())};
  draw_stacked_bars(svg, area, bars, kPartColours, point.lower_bound,
                    "seconds (* changes the order of the samples)");
  std::vector<LegendEntry> legend;
  for (size_t part = 0; part < kPartNames.size(); ++part)
    legend.push_back({kPartNames[part], kPartColours[part]});
  legend.push_back({"lower bound", std::string(kBoundColour), LegendMark::dashes});
  draw_legend(svg, {area.right() + kNote, area.top + 10}, legend);
  return area.bottom() + kFoot;
}

double epoch_chart(Svg& svg, double top, const StudyPoint& point) {
  std::vector<Series> series;
  size_t epochs = 0;
  for (const Outcome& o : point.outcomes) {
    if (!o.refusal.empty()) continue;
    series.push_back(
        {std::string(o.policy->title), o.epoch_seconds, o.policy->name == "lower-bound", is_own(*o.policy)});
    epochs = std::max(epochs, o.epoch_seconds.size());
  }
  std::vector<std::string> categories;
  for (size_t epoch = 1; epoch <= epochs; ++epoch) categories.push_back(std::to_string(epoch));
  title(svg, top, "Time of each epoch");
  const ChartArea area{kLeft, top + kTitle, kChartWidth, kChartHeight};
  draw_lines(svg, area, {categories}, series, "epoch (the first with what is loaded before it)", "seconds");
  return area.bottom() + kFoot;
}

double frequency_chart(Svg& svg, double top, const AccessFrequencies& frequencies, const char* reader,
                       const std::string& job = "") {
  const double highest = *std::max_element(frequencies.binomial.begin(), frequencies.binomial.end());
  size_t first = 0;
  size_t end = frequencies.counted.size();
  const auto seen = [&](size_t at) {
    return std::max(frequencies.counted[at], frequencies.binomial[at]) > highest * kTooSmall;
  };
  while (first + 1 < end && !seen(first)) ++first;
  while (end > first + 1 && !seen(end - 1)) --end;
  const auto part = [&](const std::vector<double>& values) {
    return std::vector<double>(values.begin() + static_cast<ptrdiff_t>(first),
                               values.begin() + static_cast<ptrdiff_t>(end));
  };
  title(svg, top,
        fmt::format("How often a {} reads a sample over the job{}{}", reader, job.empty() ? "" : ": ", job));
  const ChartArea area{kLeft, top + kTitle, kChartWidth, kChartHeight};
  draw_histogram(svg, area, first, part(frequencies.counted), part(frequencies.binomial), "reads", "samples");
  return area.bottom() + kFoot;
}

Result<std::string> single_study(const StudyPoint& point) {
  const auto frequencies = count_access_frequencies(point.scenario, point.samples);
  if (!frequencies) return frequencies.error();
  Svg svg(kWidth, 3 * (kTitle + kFoot) + bars_height(point.outcomes.size()) + 2 * kChartHeight);
  double top = runtime_chart(svg, 0, point);
  top = epoch_chart(svg, top, point);
  frequency_chart(svg, top, *frequencies, "worker");
  return svg.document();
}

std::string series_label(std::string_view title, const StudyPoint& point) {
  std::string label(title);
  for (size_t axis = 1; axis < point.settings.size(); ++axis) {
    label += fmt::format(", {}={}", point.settings[axis].first, point.settings[axis].second);
  }
  return label;
}

// A value of a sweep as a number, a capacity in MB as scenarios have it; nothing where it is a word.
std::optional<double> place_of_value(const std::string& text) {
  double number = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failure == std::errc() && end == text.data() + text.size()) return number;
  const auto bytes = parse_size(text);
  if (!bytes) return std::nullopt;
  return static_cast<double>(*bytes) / (1 << 20);
}

// An axis of numbers where all values are some, in the order of their size.
LineAxis sweep_axis(const std::vector<std::string>& values) {
  LineAxis axis{values};
  for (const std::string& value : values) {
    const auto place = place_of_value(value);
    if (!place || *place < 0) return {values};
    axis.places.push_back(*place);
  }
  const bool ascend = std::is_sorted(axis.places.begin(), axis.places.end());
  return ascend && axis.places.back() > 0 ? axis : LineAxis{values};
}

// Points that have the same value of the first axis: they stand together.
size_t points_a_value(const std::vector<StudyPoint>& points) {
  const auto next = std::find_if(points.begin(), points.end(), [&](const StudyPoint& point) {
    return point.settings[0].second != points[0].settings[0].second;
  });
  return static_cast<size_t>(next - points.begin());
}

std::string sweep_study(const std::vector<StudyPoint>& points) {
  const size_t others = points_a_value(points);
  std::vector<std::string> categories;
  for (size_t at = 0; at < points.size(); at += others) categories.push_back(points[at].settings[0].second);
  std::vector<Series> series;
  for (size_t other = 0; other < others; ++other) {
    for (size_t policy = 0; policy < points[0].outcomes.size(); ++policy) {
      Series& line = series.emplace_back(
          Series{series_label(points[other].outcomes[policy].policy->title, points[other]),
                 {},
                 false,
                 is_own(*points[other].outcomes[policy].policy)});
      for (size_t at = other; at < points.size(); at += others) {
        const Outcome& outcome = points[at].outcomes[policy];
        line.values.push_back(outcome.refusal.empty() ? outcome.runtime
                                                      : std::numeric_limits<double>::quiet_NaN());
      }
    }
    // Storage does not change the bound: then one line is enough.
    Series bound{other == 0 ? "Lower bound" : series_label("Lower bound", points[other]), {}, true};
    for (size_t at = other; at < points.size(); at += others) bound.values.push_back(points[at].lower_bound);
    const bool known = std::any_of(series.begin(), series.end(),
                                   [&](const Series& line) { return line.values == bound.values; });
    if (!known) series.push_back(std::move(bound));
  }
  constexpr double kLegendRow = 18;
  const double height = std::max(kChartHeight * 1.4, kLegendRow * static_cast<double>(series.size()) + 20);
  Svg svg(kWidth, kTitle + height + kFoot);
  title(svg, 0,
        fmt::format("{}: runtime by {}{}", points[0].scenario.name, points[0].settings[0].first,
                    job_text(points)));
  draw_lines(svg, {90, kTitle, kChartWidth, height}, sweep_axis(categories), std::move(series),
             sweep_label(points[0].scenario, points[0].settings[0].first), "runtime, seconds");
  return svg.document();
}

}  // namespace

std::string frequency_plot(const AccessFrequencies& frequencies, const std::vector<Bar>& sources,
                           const std::string& job) {
  const double bars = sources.empty() ? 0 : kTitle + bars_height(sources.size()) + kFoot;
  Svg svg(kWidth, kTitle + kChartHeight + kFoot + bars);
  const double top = frequency_chart(svg, 0, frequencies, "node", job);
  if (sources.empty()) return svg.document();
  title(svg, top, "Where all nodes read from over the job");
  draw_stacked_bars(svg, {kLeft, top + kTitle, kChartWidth, bars_height(sources.size())}, sources,
                    {std::string(kOwnColour)}, 0, "GiB");
  return svg.document();
}

Result<std::string> study_plots(const std::vector<StudyPoint>& points) {
  if (points[0].settings.empty()) return single_study(points[0]);
  return sweep_study(points);
}

}  // namespace clairfs
