#include "mount-helper/commands/top_report.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "cache/base/escaped.h"
#include "cache/base/units.h"

namespace clairfs {
namespace {

using Json = nlohmann::json;

// The number at a pointer such as "/pfs/bytes"; 0 if there is none.
double number(const Json& json, const char* pointer) {
  const Json::json_pointer at(pointer);
  return json.contains(at) && json[at].is_number() ? json[at].get<double>() : 0;
}

std::string text(const Json& json, const char* pointer) {
  const Json::json_pointer at(pointer);
  return json.contains(at) && json[at].is_string() ? json[at].get<std::string>() : "";
}

// How much a counter went up; 0 if it was begun anew.
double increase(const Json& before, const Json& after, const char* pointer) {
  return std::max(0.0, number(after, pointer) - number(before, pointer));
}

const Json& plans_of(const Json& stats) {
  static const Json none = Json::array();
  const auto found = stats.find("plan_list");
  return found != stats.end() && found->is_array() ? *found : none;
}

// The same plan in the reading before; null if it was not in force.
const Json& earlier(const Json& before, const Json& plan) {
  static const Json none;
  for (const Json& other : plans_of(before)) {
    if (text(other, "/name") == text(plan, "/name") && text(other, "/text") == text(plan, "/text"))
      return other;
  }
  return none;
}

// Samples that the plan's reader passed; 0 for a plan that is new.
double passed(const Json& before, const Json& plan) {
  const Json& other = earlier(before, plan);
  return other.is_null() ? 0 : increase(other, plan, "/passed");
}

std::string size(double bytes) {
  return format_size(static_cast<uint64_t>(std::max(0.0, bytes)));
}

std::string sources_line(const ByteSources& bytes) {
  if (bytes.all() <= 0) return "reads   none in this time";
  const auto share = [&](const char* name, double part) {
    return fmt::format("  {} {:.1f} %", name, 100 * part / bytes.all());
  };
  std::string line = "reads ";
  line += bytes.page_cache_known ? share("page cache", bytes.page_cache) : "  page cache not known";
  line += share("RAM", bytes.ram) + share("NVMe", bytes.nvme);
  if (bytes.peer > 0) line += share("peers", bytes.peer);
  return line + share("PFS", bytes.pfs);
}

// Processes that read at the same time: a loader's workers, or the training process itself.
double readers_of(const Json& stats) {
  double readers = 0;
  for (const Json& plan : plans_of(stats)) {
    const double ranks = std::max(1.0, number(plan, "/plan/ranks_per_node"));
    readers = std::max(readers, ranks * std::max(1.0, number(plan, "/plan/workers")));
  }
  return readers;
}

std::string stall_line(const Json& before, const Json& after, double seconds) {
  const double waiting = increase(before, after, "/stall_seconds") / seconds;
  const double readers = readers_of(after);
  if (readers == 0) return fmt::format("stall   {:.2f} readers waiting on average", waiting);
  return fmt::format("stall   {:.1f} % of the time of {:.0f} readers", 100 * waiting / readers, readers);
}

std::string fill(const Json& stats, const char* name, const std::string& pointer) {
  const double bytes = number(stats, (pointer + "/bytes").c_str());
  const double capacity = number(stats, (pointer + "/capacity").c_str());
  if (capacity <= 0) return "";
  return fmt::format("  {} {} of {} ({:.0f} %)", name, size(bytes), size(capacity), 100 * bytes / capacity);
}

std::string plan_line(const Json& before, const Json& plan, double seconds) {
  if (text(plan, "/state") == "indexing")
    return fmt::format("plan {}  indexing {:.0f} %", escaped(text(plan, "/name")), number(plan, "/percent"));
  if (text(plan, "/state") == "failed") return fmt::format("plan {}  failed", escaped(text(plan, "/name")));
  const double rate = passed(before, plan) / seconds;
  const double ahead = number(plan, "/ahead");
  std::string line =
      fmt::format("plan {}  {}  epoch {:.0f}  {:.0f} of {:.0f}  {:.0f} samples/s  ahead {:.0f} samples",
                  escaped(text(plan, "/name")), escaped(text(plan, "/state")), number(plan, "/epoch"),
                  number(plan, "/high_water"), number(plan, "/epoch_length"), rate, ahead);
  if (rate > 0) line += fmt::format(" ({:.1f} s)", ahead / rate);
  return line;
}

// Why the plan failed, or what the tracker found while it is suspended; empty otherwise.
std::string trouble_line(const Json& plan) {
  if (text(plan, "/state") == "failed") return kTroubleMark + escaped(text(plan, "/error"));
  if (text(plan, "/state") != "suspended") return "";
  const std::string why =
      fmt::format("{}left the plan at {}", kTroubleMark, escaped(text(plan, "/divergence/text")));
  const std::string instead = text(plan, "/followed_instead");
  return instead.empty() ? why : fmt::format("{}; followed instead: {}", why, escaped(instead));
}

// What `status` lists under Troubles, but for those of plans: they stand with their plan.
std::vector<std::string> trouble_lines(const Json& stats) {
  std::vector<std::string> lines;
  const auto troubles = stats.find("troubles");
  if (troubles == stats.end() || !troubles->is_array()) return lines;
  for (const Json& trouble : *troubles) {
    if (text(trouble, "/kind").starts_with("plan_") && !plans_of(stats).empty()) continue;
    const std::string first = text(trouble, "/first");
    lines.push_back(fmt::format("{}{}{}", kTroubleMark, escaped(text(trouble, "/text")),
                                first.empty() ? "" : ": " + escaped(first)));
  }
  return lines;
}

bool is_inside_character(const std::string& text, size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

}  // namespace

ByteSources byte_sources(const Json& before, const Json& after) {
  ByteSources bytes;
  bytes.ram = increase(before, after, "/bytes/ram");
  bytes.nvme = increase(before, after, "/bytes/nvme");
  bytes.peer = increase(before, after, "/bytes/peer");
  bytes.pfs = increase(before, after, "/bytes/pfs");
  double consumed = 0;
  for (const Json& plan : plans_of(after)) {
    const double samples = number(plan, "/samples");
    if (samples > 0) consumed += passed(before, plan) * number(plan, "/bytes") / samples;
  }
  bytes.page_cache_known = consumed > 0;
  bytes.page_cache = std::max(0.0, consumed - bytes.all());
  return bytes;
}

std::vector<std::string> top_lines(const Json& before, const Json& after, double seconds,
                                   const std::string& no_plan) {
  const double span = std::max(seconds, 1e-3);
  std::vector<std::string> lines;
  lines.push_back(fmt::format("clairfs {}  from {}", escaped(text(after, "/mountpoint")),
                              escaped(text(after, "/source"))));
  lines.push_back(sources_line(byte_sources(before, after)));
  lines.push_back(stall_line(before, after, span));
  lines.push_back(fmt::format("PFS     {}/s  {:.0f} opens/s  {:.0f} at once",
                              size(increase(before, after, "/pfs/bytes") / span),
                              increase(before, after, "/pfs/opens") / span, number(after, "/pfs/in_flight")));
  const std::string fills = fill(after, "RAM", "/tiers/ram") + fill(after, "NVMe", "/tiers/nvme") +
                            fill(after, "ahead", "/staging");
  if (!fills.empty()) lines.push_back("filled" + fills);
  for (const Json& plan : plans_of(after)) {
    lines.push_back(plan_line(before, plan, span));
    if (std::string trouble = trouble_line(plan); !trouble.empty()) lines.push_back(std::move(trouble));
  }
  if (plans_of(after).empty()) lines.push_back(no_plan);
  std::ranges::move(trouble_lines(after), std::back_inserter(lines));
  return lines;
}

std::string top_json(const Json& before, const Json& after, double seconds, double time) {
  const double span = std::max(seconds, 1e-3);
  const ByteSources bytes = byte_sources(before, after);
  nlohmann::ordered_json report = {{"time", time}, {"span_seconds", seconds}};
  for (const char* same : {"mountpoint", "source"})
    report[same] = text(after, fmt::format("/{}", same).c_str());
  auto& reads = report["read_bytes_per_second"];
  reads["page_cache"] = bytes.page_cache_known ? Json(bytes.page_cache / span) : Json();
  reads["ram"] = bytes.ram / span;
  reads["nvme"] = bytes.nvme / span;
  reads["peers"] = bytes.peer / span;
  reads["pfs"] = bytes.pfs / span;
  report["stall_seconds"] = increase(before, after, "/stall_seconds");
  report["source_bytes_per_second"] = increase(before, after, "/pfs/bytes") / span;
  report["source_opens_per_second"] = increase(before, after, "/pfs/opens") / span;
  report["source_in_flight"] = number(after, "/pfs/in_flight");
  for (const char* tier : {"ram", "nvme"})
    report["tier_bytes"][tier] = number(after, fmt::format("/tiers/{}/bytes", tier).c_str());
  report["ahead_bytes"] = number(after, "/staging/bytes");
  report["plans"] = Json::array();
  for (const Json& plan : plans_of(after)) {
    if (!plan.is_object()) continue;
    nlohmann::ordered_json row;
    for (const char* key : {"name", "state", "epoch", "high_water", "epoch_length", "ahead"})
      row[key] = plan.value(key, Json());
    row["samples_per_second"] = passed(before, plan) / span;
    report["plans"].push_back(std::move(row));
  }
  report["troubles"] = after.value("troubles", Json::array());
  return report.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::vector<std::string> wrapped(const std::string& line, size_t columns) {
  constexpr size_t kLeast = 20;  // narrower, words are only cut
  const size_t width = std::max(columns, kLeast);
  const std::string indent(line.starts_with(kTroubleMark) ? 2 : 8, ' ');
  std::vector<std::string> parts;
  std::string rest = line;
  while (rest.size() > width) {
    size_t end = rest.rfind("  ", width);  // between two fields
    if (end == std::string::npos || end <= indent.size()) end = rest.rfind(' ', width);
    if (end == std::string::npos || end <= indent.size()) {
      end = width;
      while (is_inside_character(rest, end)) --end;
    }
    parts.push_back(rest.substr(0, end));
    rest = indent + rest.substr(std::min(rest.find_first_not_of(' ', end), rest.size()));
  }
  parts.push_back(rest);
  return parts;
}

bool same_daemon(const Json& before, const Json& after) {
  return text(before, "/daemon/control_socket") == text(after, "/daemon/control_socket");
}

}  // namespace clairfs
