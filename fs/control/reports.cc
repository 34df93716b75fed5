#include "fs/control/reports.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cache/base/escaped.h"
#include "cache/base/plural.h"
#include "cache/base/units.h"

namespace clairfs {
namespace {

template <class... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <class... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

double percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

std::string tier_line(const char* name, const Gauge& bytes, const Gauge& capacity, const Gauge& chunks) {
  const auto used = static_cast<uint64_t>(std::max<int64_t>(bytes.value(), 0));
  const auto all = static_cast<uint64_t>(std::max<int64_t>(capacity.value(), 0));
  return fmt::format("  {:<5} {:>10} of {:>10}  ({:5.1f} %)  {} chunks\n", name, format_size(used),
                     format_size(all), percent(used, all), chunks.value());
}

std::string reads_line(const char* name, uint64_t reads, uint64_t bytes, uint64_t all_bytes) {
  return fmt::format("  {:<5} {:>10} reads  {:>10}  ({:5.1f} %)\n", name, reads, format_size(bytes),
                     percent(bytes, all_bytes));
}

std::string troubles_text(const std::vector<Trouble>& troubles) {
  std::string out;
  for (const Trouble& trouble : troubles) {
    out += fmt::format("  {}\n", trouble.text);
    if (trouble.first.empty()) continue;
    const char* which = trouble.code == "dirty_writes" ? "the last: "
                        : trouble.count > 1            ? "the first: "
                                                       : "";
    out += fmt::format("    {}{}\n", which, trouble.first);
  }
  return out.empty() ? "  none\n" : out;
}

// What the scan left out; empty if that was nothing.
std::string left_out_text(const Metrics& m) {
  const auto skipped = static_cast<uint64_t>(m.catalog_skipped.value());
  const auto unreadable = static_cast<uint64_t>(m.catalog_unreadable.value());
  std::string out;
  if (skipped > 0) out += pluralize(skipped, "special file", "special files") + " left out";
  if (unreadable > 0)
    out += (out.empty() ? "" : ", ") + pluralize(unreadable, "entry", "entries") + " could not be read";
  return out.empty() ? "" : fmt::format("            {}\n", out);
}

}  // namespace

std::string status_text(const MountInfo& info, const Metrics& m, const std::string& plans,
                        const std::string& job, const std::vector<Trouble>& troubles) {
  const uint64_t all =
      m.bytes_ram.value() + m.bytes_nvme.value() + m.bytes_peer.value() + m.bytes_pfs.value();
  std::string out;
  out += fmt::format("clairfs {}{}  pid {}  up {}  io {}\n", CLAIRFS_VERSION,
                     info.commit.empty() ? "" : " (" + info.commit + ")", info.pid,
                     format_uptime(std::chrono::steady_clock::now() - info.started), info.io_backend);
  out += fmt::format("source      {}\nmountpoint  {}\n", escaped(info.source), escaped(info.mountpoint));
  out += fmt::format("catalog     {}, {}, {}; {}{}\n", pluralize(m.catalog_files.value(), "file", "files"),
                     pluralize(m.catalog_directories.value(), "directory", "directories"),
                     format_size(static_cast<uint64_t>(m.catalog_bytes.value())), info.catalog_origin,
                     info.catalog_reason.empty() ? "" : " (" + info.catalog_reason + ")");
  out += left_out_text(m);
  out += "\nTiers\n";
  out += tier_line("RAM", m.ram_bytes, m.ram_capacity, m.ram_chunks);
  out += info.nvme_directories.empty() ? "  NVMe        none  (--nvme DIR)\n"
                                       : tier_line("NVMe", m.nvme_bytes, m.nvme_capacity, m.nvme_chunks);
  if (m.nvme_copies.value() > 0) {
    out += fmt::format("        of these {} are copies of the RAM tier, for a restart\n",
                       format_size(static_cast<uint64_t>(m.nvme_copy_bytes.value())));
  }
  for (const std::string& directory : info.nvme_directories) out += fmt::format("        in {}\n", directory);
  out += "\nReads that reached clairfs (the page cache answered the others)\n";
  out += reads_line("RAM", m.reads_ram.value(), m.bytes_ram.value(), all);
  out += reads_line("NVMe", m.reads_nvme.value(), m.bytes_nvme.value(), all);
  if (!job.empty()) out += reads_line("peers", m.reads_peer.value(), m.bytes_peer.value(), all);
  out += reads_line("PFS", m.reads_pfs.value(), m.bytes_pfs.value(), all);
  out += fmt::format("  joined a fetch under way: {}   waited in all: {}\n", m.reads_joined.value(),
                     format_duration(std::chrono::nanoseconds(m.stall_ns.value())));
  out += fmt::format("\nSource\n  {} opens, {} reads, {}   median {:.1f} ms   {} at once\n",
                     m.pfs_opens.value(), m.pfs_reads.value(), format_size(m.pfs_bytes.value()),
                     m.pfs_latency.quantile_seconds(0.5) * 1e3, m.pfs_concurrency.value());
  if (!job.empty()) out += "\nJob\n" + job;
  if (!plans.empty()) {
    out += "\nPlans\n" + plans;
    out += fmt::format("  pushed ahead {} samples ({}), {} as sentinels, {} dropped after use\n",
                       m.staging_pushed.value(), format_size(m.staging_pushed_bytes.value()),
                       m.staging_sentinels.value(), m.staging_dropped.value());
  }
  out += "\nTroubles\n" + troubles_text(troubles);
  if (!info.log_file.empty()) out += fmt::format("\nlog {}\n", info.log_file);
  return out;
}

std::string stats_json(const MountInfo& info, const Metrics& metrics, const std::string& plans,
                       const std::string& job, const std::vector<Trouble>& troubles) {
  using Json = nlohmann::ordered_json;
  Json root;
  const auto uptime = std::chrono::steady_clock::now() - info.started;
  root["daemon"] = {{"pid", info.pid},
                    {"version", CLAIRFS_VERSION},
                    {"commit", info.commit},
                    {"uptime_seconds", std::chrono::duration<double>(uptime).count()},
                    {"control_socket", info.control_socket}};
  root["source"] = info.source;
  root["mountpoint"] = info.mountpoint;
  root["io"] = info.io_backend;
  for (const MetricInfo& metric : metric_table()) {
    std::string path = std::string("/") + metric.path;
    std::replace(path.begin(), path.end(), '.', '/');
    const bool seconds = metric.unit == MetricUnit::nanoseconds;
    std::visit(
        Overloaded{[&](Counter Metrics::*counter) {
                     const uint64_t value = (metrics.*counter).value();
                     if (seconds) {
                       root[Json::json_pointer(path + "_seconds")] = static_cast<double>(value) * 1e-9;
                     } else {
                       root[Json::json_pointer(path)] = value;
                     }
                   },
                   [&](Gauge Metrics::*gauge) { root[Json::json_pointer(path)] = (metrics.*gauge).value(); },
                   [&](Histogram Metrics::*member) {
                     const Histogram& histogram = metrics.*member;
                     root[Json::json_pointer(path)] = {{"count", histogram.count()},
                                                       {"sum_seconds", histogram.sum_seconds()},
                                                       {"p50_seconds", histogram.quantile_seconds(0.5)},
                                                       {"p99_seconds", histogram.quantile_seconds(0.99)}};
                   }},
        metric.member);
  }
  root["plan_list"] = Json::parse(plans);
  root["troubles"] = Json::array();
  for (const Trouble& trouble : troubles) {
    Json entry = {{"kind", trouble.code}, {"count", trouble.count}, {"text", trouble.text}};
    if (!trouble.first.empty()) entry["first"] = trouble.first;
    root["troubles"].push_back(std::move(entry));
  }
  root.update(Json::parse(job));
  // Names in the dataset's path need not be UTF-8.
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace clairfs
