#include "plan/simulator/study/study.h"

#include <algorithm>
#include <cerrno>
#include <numeric>

#include <fmt/format.h>

#include "cache/base/escaped.h"
#include "plan/simulator/scenario/sample_sizes.h"

namespace clairfs {
namespace {

constexpr size_t kMostPoints = 10000;  // more is a typing error

// Splits at commas outside of braces.
std::vector<std::string> split_values(std::string_view text) {
  std::vector<std::string> values(1);
  int depth = 0;
  for (const char c : text) {
    depth += c == '{' ? 1 : c == '}' ? -1 : 0;
    if (c == ',' && depth == 0) {
      values.emplace_back();
    } else {
      values.back() += c;
    }
  }
  return values;
}

Result<std::vector<StudyPoint>> points_of(const Scenario& scenario, const std::vector<SweepAxis>& axes) {
  std::vector<StudyPoint> points(1);
  points[0].scenario = scenario;
  for (const SweepAxis& axis : axes) {
    if (points.size() * axis.values.size() > kMostPoints) {
      return Error{EINVAL, fmt::format("the sweep has more than {} combinations", kMostPoints)};
    }
    std::vector<StudyPoint> next;
    for (const StudyPoint& point : points) {
      for (const std::string& value : axis.values) {
        StudyPoint varied = point;
        const Status set = set_scenario_value(varied.scenario, axis.name, value);
        if (!set) return Error{EINVAL, "sweep: " + set.error().message};
        varied.settings.emplace_back(axis.name, value);
        next.push_back(std::move(varied));
      }
    }
    points = std::move(next);
  }
  return points;
}

class Study {
 public:
  Study(const std::vector<const Policy*>& policies, size_t points, Logger& log,
        const std::function<void(const StudyProgress&)>& progress)
      : policies_(policies), log_(log), progress_(progress), runs_(points * policies.size()) {}

  Status run(StudyPoint& point) {
    const auto sizes = make_sample_sizes(point.scenario, log_);
    if (!sizes) return sizes.error();
    point.samples = sizes->size();
    point.dataset_mb = std::accumulate(sizes->begin(), sizes->end(), 0.0);
    const auto bound = simulate(point.scenario, *sizes, *find_policy("lower-bound"));
    if (!bound) return bound.error();
    point.lower_bound = bound->runtime;
    for (const Policy* policy : policies_) {
      ++run_;
      auto outcome = simulate(point.scenario, *sizes, *policy, [&](uint64_t done, uint64_t total) {
        tell(*policy, static_cast<double>(done) / static_cast<double>(total));
      });
      if (!outcome) return outcome.error();
      point.outcomes.push_back(std::move(*outcome));
    }
    return {};
  }

 private:
  void tell(const Policy& policy, double done_of_run) {
    if (!progress_) return;
    const double done = (static_cast<double>(run_ - 1) + done_of_run) / static_cast<double>(runs_);
    progress_(StudyProgress{done, policy.name, run_, runs_});
  }

  const std::vector<const Policy*>& policies_;
  Logger& log_;
  const std::function<void(const StudyProgress&)>& progress_;
  const size_t runs_;
  size_t run_ = 0;
};

}  // namespace

Result<SweepAxis> parse_sweep(std::string_view text) {
  const size_t equals = text.find('=');
  SweepAxis axis;
  if (equals != std::string_view::npos) {
    axis.name = text.substr(0, equals);
    axis.values = split_values(text.substr(equals + 1));
  }
  const bool complete = !axis.name.empty() && !axis.values.empty() &&
                        std::none_of(axis.values.begin(), axis.values.end(),
                                     [](const std::string& value) { return value.empty(); });
  if (!complete) {
    return Error{EINVAL, fmt::format("sweep: '{}' is none; want NAME=VALUE,VALUE such as ram=0,10G,20G",
                                     escaped(text))};
  }
  for (size_t at = 0; at < axis.values.size(); ++at) {
    if (std::find(axis.values.begin(), axis.values.begin() + static_cast<ptrdiff_t>(at), axis.values[at]) !=
        axis.values.begin() + static_cast<ptrdiff_t>(at)) {
      return Error{EINVAL, fmt::format("sweep: {}={} comes twice", axis.name, axis.values[at])};
    }
  }
  return axis;
}

Result<std::vector<StudyPoint>> run_study(const Scenario& scenario,
                                          const std::vector<const Policy*>& policies,
                                          const std::vector<SweepAxis>& axes, Logger& log,
                                          const std::function<void(const StudyProgress&)>& progress) {
  auto points = points_of(scenario, axes);
  if (!points) return points.error();
  Study study(policies, points->size(), log, progress);
  for (StudyPoint& point : *points) {
    const Status done = study.run(point);
    if (!done) return done.error();
  }
  return points;
}

}  // namespace clairfs
