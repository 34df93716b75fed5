#include "fs/control/reports.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

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

std::string troubles(const Metrics& m, const std::string& last_writer) {
  std::string out;
  const auto line = [&](const Counter& counter, const char* text) {
    if (counter.value() > 0) out += fmt::format("  {} {}\n", counter.value(), text);
  };
  line(m.reads_failed, "reads failed");
  line(m.pfs_errors, "errors from the source");
  line(m.pfs_stale_files, "reads refused because the source file changed since the scan");
  line(m.nvme_errors, "errors from NVMe");
  line(m.fuse_dirty_writes,
       "writes to dataset files, refused and dropped; others may have read what they changed");
  if (!last_writer.empty()) out += fmt::format("    the last: {}\n", last_writer);
  line(m.nvme_checksum_failures, "chunks on NVMe had a wrong checksum and were fetched again");
  if (m.nvme_disabled.value() > 0) {
    out += fmt::format("  {} NVMe directories are switched off: see the log\n", m.nvme_disabled.value());
  }
  return out.empty() ? "  none\n" : out;
}

std::string prometheus_name(const MetricInfo& metric) {
  std::string name = std::string("clairfs_") + metric.path;
  std::replace(name.begin(), name.end(), '.', '_');
  return metric.unit == MetricUnit::nanoseconds ? name + "_seconds" : name;
}

void append_histogram(std::string& out, const std::string& name, const Histogram& histogram) {
  uint64_t below = 0;
  for (size_t i = 0; i + 1 < Histogram::kBuckets; ++i) {
    below += histogram.bucket(i);
    out += fmt::format("{}_bucket{{le=\"{:g}\"}} {}\n", name, std::ldexp(1e-6, static_cast<int>(i)), below);
  }
  const uint64_t count = below + histogram.bucket(Histogram::kBuckets - 1);
  out += fmt::format("{0}_bucket{{le=\"+Inf\"}} {1}\n{0}_sum {2}\n{0}_count {1}\n", name, count,
                     histogram.sum_seconds());
}

}  // namespace

std::string status_text(const MountInfo& info, const Metrics& m, const std::string& plans,
                        const std::string& job, const std::string& last_writer) {
  const uint64_t all =
      m.bytes_ram.value() + m.bytes_nvme.value() + m.bytes_peer.value() + m.bytes_pfs.value();
  std::string out;
  out += fmt::format("clairfs {}  pid {}  up {}  io {}\n", CLAIRFS_VERSION, info.pid,
                     format_uptime(std::chrono::steady_clock::now() - info.started), info.io_backend);
  out += fmt::format("source      {}\nmountpoint  {}\n", info.source, info.mountpoint);
  out += fmt::format("catalog     {}, {}, {}; {}{}\n", pluralize(m.catalog_files.value(), "file", "files"),
                     pluralize(m.catalog_directories.value(), "directory", "directories"),
                     format_size(static_cast<uint64_t>(m.catalog_bytes.value())), info.catalog_origin,
                     info.catalog_reason.empty() ? "" : " (" + info.catalog_reason + ")");
  if (m.catalog_skipped.value() + m.catalog_unreadable.value() > 0) {
    out += fmt::format("            {} special files left out, {} entries could not be read\n",
                       m.catalog_skipped.value(), m.catalog_unreadable.value());
  }
  out += "\nTiers\n";
  out += tier_line("RAM", m.ram_bytes, m.ram_capacity, m.ram_chunks);
  out += tier_line("NVMe", m.nvme_bytes, m.nvme_capacity, m.nvme_chunks);
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
  out += "\nTroubles\n" + troubles(m, last_writer);
  if (!info.log_file.empty()) out += fmt::format("\nlog {}\n", info.log_file);
  return out;
}

std::string stats_json(const MountInfo& info, const Metrics& metrics, const std::string& plans,
                       const std::string& job) {
  using Json = nlohmann::ordered_json;
  Json root;
  const auto uptime = std::chrono::steady_clock::now() - info.started;
  root["daemon"] = {{"pid", info.pid},
                    {"version", CLAIRFS_VERSION},
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
  root.update(Json::parse(job));
  // Names in the dataset's path need not be UTF-8.
  return root.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::string prometheus_text(const Metrics& metrics) {
  std::string out;
  for (const MetricInfo& metric : metric_table()) {
    const std::string name = prometheus_name(metric);
    const double scale = metric.unit == MetricUnit::nanoseconds ? 1e-9 : 1;
    std::visit(Overloaded{[&](Counter Metrics::*counter) {
                            out += fmt::format("# HELP {0}_total {1}\n# TYPE {0}_total counter\n", name,
                                               metric.help);
                            const uint64_t value = (metrics.*counter).value();
                            out += scale == 1 ? fmt::format("{}_total {}\n", name, value)
                                              : fmt::format("{}_total {}\n", name,
                                                            static_cast<double>(value) * scale);
                          },
                          [&](Gauge Metrics::*gauge) {
                            out += fmt::format("# HELP {0} {1}\n# TYPE {0} gauge\n{0} {2}\n", name,
                                               metric.help, (metrics.*gauge).value());
                          },
                          [&](Histogram Metrics::*histogram) {
                            out += fmt::format("# HELP {0} {1}\n# TYPE {0} histogram\n", name, metric.help);
                            append_histogram(out, name, metrics.*histogram);
                          }},
               metric.member);
  }
  return out;
}

}  // namespace clairfs
