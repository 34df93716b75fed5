#include "plan/simulator/study/report.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cache/base/units.h"

namespace clairfs {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kSourceNames[kSources] = {"pfs", "peer", "local"};

uint64_t bytes(double mb) {
  return static_cast<uint64_t>(std::llround(mb * kMegabyte));
}

double total(const BySource& values) {
  return values[0] + values[1] + values[2];
}

// --- Table

std::string describe(const StudyPoint& point) {
  const Scenario& s = point.scenario;
  std::string text = fmt::format("{}: {} workers, {} epochs, batch {}, {} samples, {}", s.name, s.workers,
                                 s.epochs, s.batch, point.samples, format_size(bytes(point.dataset_mb)));
  return text + fmt::format("; each worker keeps up to {}", format_size(bytes(s.worker_capacity())));
}

std::string percent(double part, double whole) {
  return whole > 0 ? fmt::format("{:.1f} %", 100 * part / whole) : "-";
}

std::vector<std::string> table_row(const StudyPoint& point, const Outcome& o) {
  const double delivered = total(o.delivered_mb);
  return {std::string(o.policy->name),
          fmt::format("{:.2f}", o.runtime),
          fmt::format("{:.2f}", o.stalled()),
          fmt::format("{:.3f}", o.runtime / point.lower_bound),
          percent(o.delivered_mb[size_t(Source::pfs)], delivered),
          percent(o.delivered_mb[size_t(Source::peer)], delivered),
          percent(o.delivered_mb[size_t(Source::local)], delivered),
          format_size(bytes(o.read_mb[size_t(Source::pfs)])),
          o.policy->keeps_order ? "kept" : "changed"};
}

// Aligns columns: the first `names` and the last to the left, figures to the right. The last cell of a row
// that has one more than `names` is a sentence and may run across the others.
std::string align(const std::vector<std::vector<std::string>>& rows, size_t names) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t column = 0; column < row.size(); ++column) {
      if (row.size() > names + 1 || column < names)
        widths[column] = std::max(widths[column], row[column].size());
    }
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (size_t column = 0; column < names; ++column)
      line += fmt::format("{:<{}}  ", row[column], widths[column]);
    for (size_t column = names; column + 1 < row.size(); ++column)
      line += fmt::format("{:>{}}  ", row[column], widths[column]);
    line += row.back();
    text += line + "\n";
  }
  return text;
}

// --- JSON

OrderedJson by_source(const BySource& mb) {
  OrderedJson object;
  for (size_t source = 0; source < kSources; ++source) object[kSourceNames[source]] = bytes(mb[source]);
  return object;
}

OrderedJson seconds_by_source(const BySource& seconds) {
  OrderedJson object;
  for (size_t source = 0; source < kSources; ++source) object[kSourceNames[source]] = seconds[source];
  return object;
}

OrderedJson outcome_json(const StudyPoint& point, const Outcome& o) {
  OrderedJson object;
  object["scenario"] = point.scenario.name;
  if (!point.settings.empty()) {
    for (const auto& [name, value] : point.settings) object["settings"][name] = value;
  }
  object["policy"] = o.policy->name;
  object["keeps_order"] = o.policy->keeps_order;
  if (!o.refusal.empty()) {
    for (const char* key : {"runtime_s", "stall_s", "ratio_to_lower_bound", "bytes_by_source"})
      object[key] = nullptr;
    object["refusal"] = o.refusal;
    return object;
  }
  object["runtime_s"] = o.runtime;
  object["stall_s"] = o.stalled();
  object["ratio_to_lower_bound"] = o.runtime / point.lower_bound;
  object["bytes_by_source"] = by_source(o.read_mb);
  object["delivered_bytes_by_source"] = by_source(o.delivered_mb);
  object["preparation_s"] = o.preparation;
  object["compute_s"] = o.critical.compute;
  object["stall_s_by_source"] = seconds_by_source(o.critical.stall);
  object["worker_stall_s"] = o.mean.stalled();
  object["worker_barrier_s"] = o.barrier;
  object["epoch_s"] = o.epoch_seconds;
  return object;
}

// --- CSV

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

std::string csv_figures(const StudyPoint& point, const Outcome& o) {
  if (!o.refusal.empty()) return ",,,,,,,,,,,," + csv_cell(o.refusal);
  std::string line = fmt::format("{:.6f},{:.6f},{:.6f},{:.6f},{:.6f}", o.runtime, o.stalled(),
                                 o.runtime / point.lower_bound, o.preparation, o.critical.compute);
  for (const double seconds : o.critical.stall) line += fmt::format(",{:.6f}", seconds);
  for (const double mb : o.read_mb) line += fmt::format(",{}", bytes(mb));
  return line + fmt::format(",{},", o.policy->keeps_order);
}

}  // namespace

std::string study_table(const std::vector<StudyPoint>& points) {
  const auto& swept = points.front().settings;
  std::vector<std::vector<std::string>> rows(1);
  for (const auto& [name, value] : swept) rows[0].push_back(name);
  for (const char* title : {"policy", "runtime s", "stall s", "/ lower bound", "from pfs", "peers", "local",
                            "read from pfs", "order"})
    rows[0].emplace_back(title);
  for (const StudyPoint& point : points) {
    for (const Outcome& outcome : point.outcomes) {
      std::vector<std::string>& row = rows.emplace_back();
      for (const auto& [name, value] : point.settings) row.push_back(value);
      if (outcome.refusal.empty()) {
        std::ranges::move(table_row(point, outcome), std::back_inserter(row));
      } else {
        row.insert(row.end(), {std::string(outcome.policy->name), "not possible: " + outcome.refusal});
      }
    }
  }
  return (swept.empty() ? describe(points.front()) + "\n" : "") + align(rows, swept.size() + 1);
}

std::string study_json(const std::vector<StudyPoint>& points) {
  OrderedJson all = OrderedJson::array();
  for (const StudyPoint& point : points) {
    for (const Outcome& outcome : point.outcomes) all.push_back(outcome_json(point, outcome));
  }
  // The scenario is called like its file, of which the name may be any bytes.
  return all.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

std::string study_csv(const std::vector<StudyPoint>& points) {
  std::string text = "scenario,";
  for (const auto& [name, value] : points.front().settings) text += csv_cell(name) + ",";
  text +=
      "policy,runtime_s,stall_s,ratio_to_lower_bound,preparation_s,compute_s,stall_pfs_s,stall_peer_s,stall_"
      "local_s,"
      "pfs_bytes,peer_bytes,local_bytes,keeps_order,refusal\n";
  for (const StudyPoint& point : points) {
    for (const Outcome& outcome : point.outcomes) {
      text += csv_cell(point.scenario.name) + ",";
      for (const auto& [name, value] : point.settings) text += csv_cell(value) + ",";
      text += std::string(outcome.policy->name) + "," + csv_figures(point, outcome) + "\n";
    }
  }
  return text;
}

}  // namespace clairfs
