#include "fs/control/prometheus.h"

#include <map>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

MountInfo prometheus_info() {
  MountInfo info;
  info.source = "/pfs/im \"ages\"\\\n";
  info.mountpoint = "/mnt/\xff";
  info.io_backend = "uring";
  info.started = std::chrono::steady_clock::now();
  return info;
}

/// Of the metric with this path.
std::string series_of(const std::string& path) {
  for (const MetricInfo& metric : metric_table()) {
    if (metric.path != path) continue;
    const SeriesName series = series_name(metric);
    return series.label.empty() ? series.name : series.name + "{" + series.label + "=" + series.value + "}";
  }
  return "no such metric";
}

}  // namespace

TEST_CASE("what tells series apart is a label, and the unit comes last") {
  CHECK(series_of("fuse.requests.read") == "clairfs_fuse_requests_total{op=read}");
  CHECK(series_of("fuse.requests.refused") == "clairfs_fuse_requests_refused_total");
  CHECK(series_of("fuse.requests.dirty_writes") == "clairfs_fuse_requests_dirty_writes_total");
  CHECK(series_of("reads.ram") == "clairfs_reads_total{tier=ram}");
  CHECK(series_of("reads.failed") == "clairfs_reads_failed_total");
  CHECK(series_of("bytes.pfs") == "clairfs_read_bytes_total{tier=pfs}");
  CHECK(series_of("tiers.nvme.capacity") == "clairfs_tier_capacity_bytes{tier=nvme}");
  CHECK(series_of("tiers.ram.bytes") == "clairfs_tier_bytes{tier=ram}");
  CHECK(series_of("peers.bytes_in") == "clairfs_peers_in_bytes_total");
  CHECK(series_of("stall") == "clairfs_stall_seconds_total");
  CHECK(series_of("pfs.latency") == "clairfs_pfs_latency_seconds");
  CHECK(series_of("plans.active") == "clairfs_plans_active");
}

TEST_CASE("no two metrics have one series, and those of one name are of one kind") {
  std::set<std::string> seen;
  std::map<std::string, size_t> kinds;
  for (const MetricInfo& metric : metric_table()) {
    CAPTURE(metric.path);
    CHECK(seen.insert(series_of(metric.path)).second);
    const auto [kind, fresh] = kinds.try_emplace(series_name(metric).name, metric.member.index());
    CHECK(kind->second == metric.member.index());
  }
}

TEST_CASE("names in UTF-8 stay apart, and only bytes that are none are replaced") {
  MountInfo info = prometheus_info();
  const auto mount_label = [&](const std::string& mountpoint) {
    info.mountpoint = mountpoint;
    const std::string text = prometheus_text(info, {}, {}, {});
    const size_t begin = text.find("{mount=\"") + 8;
    return text.substr(begin, text.find('"', begin) - begin);
  };
  CHECK(mount_label("/mnt/\xc3\xa4") == "/mnt/\xc3\xa4");
  CHECK(mount_label("/mnt/\xc3\xb6") == "/mnt/\xc3\xb6");
  CHECK(mount_label("/\xf0\x9f\x98\x80\xff\xc3x") == "/\xf0\x9f\x98\x80??x");
}

TEST_CASE("a plan that is made, or could not be, has a state, also beside the one that it is to replace") {
  using Making = PlanBrief::Making;
  const std::string text =
      prometheus_text(prometheus_info(), {},
                      {{"new", {}, 0, "", false, Making::indexing},
                       {"bad", {}, 0, "", false, Making::failed, "secret/name"},
                       {"old", TrackerState::following, 3, "", true, Making::failed, "secret/name"}},
                      {});
  const auto is = [&](const char* plan, const char* state) {
    const std::string series = fmt::format("plan=\"{}\",state=\"{}\"}} ", plan, state);
    const size_t at = text.find(series);
    REQUIRE(at != std::string::npos);
    CHECK(text.find(series, at + 1) == std::string::npos);
    return text[at + series.size()] == '1';
  };
  CHECK((is("new", "indexing") && !is("new", "waiting") && !is("new", "failed")));
  CHECK((is("bad", "failed") && !is("bad", "waiting") && !is("bad", "indexing")));
  CHECK((is("old", "failed") && is("old", "following") && !is("old", "waiting")));
  CHECK(text.find("clairfs_plan_ahead_samples{") != std::string::npos);
  CHECK(text.find("plan=\"bad\"} ") == std::string::npos);
  CHECK(text.find("secret") == std::string::npos);
}

TEST_CASE("troubles of one kind are one series, however many plans have it") {
  const std::string text = prometheus_text(
      prometheus_info(), {}, {},
      {{"plan_suspended", 1, "plan a is suspended", ""}, {"plan_suspended", 1, "plan b is suspended", ""}});
  const std::string series = R"(kind="plan_suspended"} )";
  const size_t at = text.find(series);
  REQUIRE(at != std::string::npos);
  CHECK(text.substr(at + series.size(), 2) == "2\n");
  CHECK(text.find(series, at + 1) == std::string::npos);
}

TEST_CASE("the Prometheus text has each name once, with its type, and labels that can be read") {
  Metrics metrics;
  metrics.pfs_bytes.add(12345678901234567ULL);
  metrics.pfs_latency.record(std::chrono::milliseconds(1));
  const std::string text = prometheus_text(prometheus_info(), metrics,
                                           {{"a\"b", TrackerState::suspended, 7, "left the plan at x"}},
                                           {{"reads_failed", 3, "3 reads failed", "secret/name"}});
  // The newline is printed as \\n: two characters, of which the backslash is escaped.
  const std::string labels = R"(mount="/mnt/?",dataset="/pfs/im \"ages\"\\\\\\n")";
  CHECK(text.find("\nclairfs_pfs_bytes_total{" + labels + "} 12345678901234567\n") != std::string::npos);
  CHECK(text.find(R"(plan="a\"b",state="suspended"} 1)") != std::string::npos);
  CHECK(text.find(R"(plan="a\"b",state="following"} 0)") != std::string::npos);
  CHECK(text.find(R"(kind="reads_failed"} 3)") != std::string::npos);
  CHECK(text.find("secret") == std::string::npos);
  std::set<std::string> typed;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    CAPTURE(line);
    if (line.starts_with("# TYPE ")) {
      CHECK(typed.insert(line.substr(7, line.rfind(' ') - 7)).second);
    } else if (!line.starts_with('#')) {
      size_t used = 0;
      const std::string value = line.substr(line.rfind(' ') + 1);
      CHECK_NOTHROW(std::stod(value, &used));
      CHECK(used == value.size());
    }
  }
}
