#include "fs/control/prometheus.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <variant>

#include <fmt/format.h>

#include "cache/base/escaped.h"
#include "plan/formats/python_order.h"

namespace clairfs {
namespace {

template <class... Handlers>
struct EachKind : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
EachKind(Handlers...) -> EachKind<Handlers...>;

// Of `reads.ram` the last word is a label's value, of `reads.failed` it is not: the values of one label add
// up to all there is.
struct LabelledGroup {
  const char* prefix;
  const char* name;
  const char* label;
  std::vector<std::string_view> values;  // empty: all but `others`
  std::vector<std::string_view> others{};
};

const std::array kGroups = {
    LabelledGroup{"fuse.requests.", "fuse_requests", "op", {}, {"refused", "dirty_writes"}},
    LabelledGroup{"reads.", "reads", "tier", {"ram", "nvme", "peer", "pfs"}},
    LabelledGroup{"bytes.", "read_bytes", "tier", {"ram", "nvme", "peer", "pfs"}},
};

bool contains(const std::vector<std::string_view>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// `tiers.ram.bytes` and its like have the value in the middle.
constexpr std::array kTiers = {"ram", "nvme", "transit"};

std::string with_underscores(std::string text) {
  std::replace(text.begin(), text.end(), '.', '_');
  return text;
}

// Label values are UTF-8 with three characters escaped; names of files need not be.
std::string label_value(std::string_view text) {
  std::string value;
  const std::string shown = escaped(text);
  for (std::string_view rest = shown; !rest.empty();) {
    const size_t length = utf8_length(rest);
    if (rest.front() == '"' || rest.front() == '\\') value += '\\';
    value += length == 0 ? "?" : rest.substr(0, length);
    rest.remove_prefix(std::max<size_t>(length, 1));
  }
  return value;
}

// Series of one name, which have to stand together.
struct Family {
  std::string type;
  std::string help;
  std::string lines;
};

// Families in the order in which they were begun.
class Exposition {
 public:
  explicit Exposition(const MountInfo& info) : labels_(mount_labels(info.mountpoint, info.source)) {}

  Family& family(const std::string& name, const char* type, const std::string& help) {
    const auto [found, fresh] = families_.try_emplace(name, Family{type, help, ""});
    if (fresh) order_.push_back(name);
    return found->second;
  }
  std::string labels(const std::string& more) const { return labels_ + (more.empty() ? "" : "," + more); }
  void add(const std::string& name, const char* type, const std::string& help, const std::string& more,
           double value) {
    family(name, type, help).lines += fmt::format("{}{{{}}} {}\n", name, labels(more), value);
  }
  std::string text() const {
    std::string out;
    for (const std::string& name : order_) {
      const Family& family = families_.at(name);
      out += fmt::format("# HELP {0} {1}\n# TYPE {0} {2}\n{3}", name, family.help, family.type, family.lines);
    }
    return out;
  }

 private:
  const std::string labels_;
  std::map<std::string, Family> families_;
  std::vector<std::string> order_;
};

std::string one_label(const SeriesName& series) {
  return series.label.empty() ? "" : fmt::format("{}=\"{}\"", series.label, series.value);
}

void add_histogram(Exposition& out, const std::string& name, const char* help, const Histogram& histogram) {
  Family& family = out.family(name, "histogram", help);
  uint64_t below = 0;
  const auto bucket = [&](const std::string& le) {
    family.lines +=
        fmt::format("{}_bucket{{{}}} {}\n", name, out.labels(fmt::format("le=\"{}\"", le)), below);
  };
  for (size_t i = 0; i + 1 < Histogram::kBuckets; ++i) {
    below += histogram.bucket(i);
    bucket(fmt::format("{:g}", std::ldexp(1e-6, static_cast<int>(i))));
  }
  below += histogram.bucket(Histogram::kBuckets - 1);
  bucket("+Inf");
  family.lines += fmt::format("{0}_sum{{{1}}} {2}\n{0}_count{{{1}}} {3}\n", name, out.labels(""),
                              histogram.sum_seconds(), below);
}

void add_metric(Exposition& out, const MetricInfo& metric, const Metrics& metrics) {
  const SeriesName series = series_name(metric);
  const double scale = metric.unit == MetricUnit::nanoseconds ? 1e-9 : 1;
  std::visit(EachKind{[&](Counter Metrics::*counter) {
                        const uint64_t value = (metrics.*counter).value();
                        if (scale != 1) {
                          out.add(series.name, "counter", metric.help, one_label(series),
                                  static_cast<double>(value) * scale);
                        } else {  // as an integer: a double would lose the last digits
                          out.family(series.name, "counter", metric.help).lines +=
                              fmt::format("{}{{{}}} {}\n", series.name, out.labels(one_label(series)), value);
                        }
                      },
                      [&](Gauge Metrics::*gauge) {
                        out.family(series.name, "gauge", metric.help).lines +=
                            fmt::format("{}{{{}}} {}\n", series.name, out.labels(one_label(series)),
                                        (metrics.*gauge).value());
                      },
                      [&](Histogram Metrics::*histogram) {
                        add_histogram(out, series.name, metric.help, metrics.*histogram);
                      }},
             metric.member);
}

// Of one kind there may be several, each with a plan of its own.
void add_troubles(Exposition& out, const std::vector<Trouble>& troubles) {
  std::map<std::string, uint64_t> counts;
  for (const Trouble& trouble : troubles) counts[trouble.code] += trouble.count;
  for (const auto& [code, count] : counts) {
    out.add("clairfs_troubles", "gauge", "what is wrong, as `clairfs status` says it, by kind",
            fmt::format("kind=\"{}\"", code), static_cast<double>(count));
  }
}

void add_plans(Exposition& out, const std::vector<PlanBrief>& plans) {
  constexpr std::array kStates = {TrackerState::waiting, TrackerState::following, TrackerState::suspended,
                                  TrackerState::finished};
  for (const PlanBrief& plan : plans) {
    const std::string name = fmt::format("plan=\"{}\"", label_value(plan.name));
    const auto add_state = [&](std::string_view state, bool is) {
      out.add("clairfs_plan_state", "gauge",
              "1 for the state that the plan is in, and for that of a text that is to replace it; else 0",
              fmt::format("{},state=\"{}\"", name, state), is ? 1 : 0);
    };
    for (const TrackerState state : kStates)
      add_state(to_string(state), plan.in_force && plan.state == state);
    add_state("indexing", plan.making == PlanBrief::Making::indexing);
    add_state("failed", plan.making == PlanBrief::Making::failed);
    if (!plan.in_force) continue;
    out.add("clairfs_plan_ahead_samples", "gauge", "samples pushed ahead of the plan's reader", name,
            static_cast<double>(plan.ahead));
  }
}

}  // namespace

SeriesName series_name(const MetricInfo& metric) {
  const std::string path = metric.path;
  SeriesName series;
  for (const LabelledGroup& group : kGroups) {
    if (!path.starts_with(group.prefix)) continue;
    const std::string last = path.substr(std::strlen(group.prefix));
    if ((!group.values.empty() && !contains(group.values, last)) || contains(group.others, last)) continue;
    series = {group.name, group.label, last};
  }
  for (const char* tier : kTiers) {
    const std::string prefix = fmt::format("tiers.{}.", tier);
    if (path.starts_with(prefix))
      series = {"tier_" + with_underscores(path.substr(prefix.size())), "tier", tier};
  }
  if (series.name.empty()) series.name = with_underscores(path);
  if (metric.unit == MetricUnit::nanoseconds) series.name += "_seconds";
  if (metric.unit == MetricUnit::bytes && !series.name.ends_with("bytes")) {
    constexpr std::string_view kInside = "bytes_";  // "peers.bytes_in"
    if (const size_t at = series.name.find(kInside); at != std::string::npos)
      series.name.erase(at, kInside.size());
    series.name += "_bytes";
  }
  if (std::holds_alternative<Counter Metrics::*>(metric.member)) series.name += "_total";
  series.name = "clairfs_" + series.name;
  return series;
}

std::string mount_labels(const std::string& mountpoint, const std::string& source) {
  return fmt::format("mount=\"{}\",dataset=\"{}\"", label_value(mountpoint), label_value(source));
}

std::string prometheus_text(const MountInfo& info, const Metrics& metrics,
                            const std::vector<PlanBrief>& plans, const std::vector<Trouble>& troubles) {
  Exposition out(info);
  out.add("clairfs_build_info", "gauge", "1; the labels tell what is running",
          fmt::format("version=\"" CLAIRFS_VERSION "\",commit=\"{}\",io=\"{}\"", info.commit,
                      label_value(info.io_backend)),
          1);
  const auto up = std::chrono::steady_clock::now() - info.started;
  const auto began = std::chrono::system_clock::now() - up;
  out.add("clairfs_start_time_seconds", "gauge", "when the mount was made, seconds since 1970", "",
          std::floor(std::chrono::duration<double>(began.time_since_epoch()).count()));
  add_troubles(out, troubles);
  add_plans(out, plans);
  for (const MetricInfo& metric : metric_table()) add_metric(out, metric, metrics);
  return out.text();
}

}  // namespace clairfs
