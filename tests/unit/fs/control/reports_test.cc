#include "fs/control/reports.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "tests/support/catch.h"

using namespace clairfs;

namespace {

MountInfo mount_info() {
  MountInfo info;
  info.source = "/pfs/im \"ages\"\n";
  info.mountpoint = "/mnt/data";
  info.io_backend = "uring";
  info.catalog_origin = "scanned in 0.01 s";
  info.control_socket = "clairfs.1.2";
  info.pid = 4711;
  info.started = std::chrono::steady_clock::now();
  return info;
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("stats.json has every metric at its place, and whatever names are made of it stays JSON") {
  Metrics metrics;
  metrics.pfs_bytes.add(12345);
  metrics.ram_chunks.set(-1);
  metrics.stall_ns.add(1'500'000'000);
  metrics.pfs_latency.record(std::chrono::milliseconds(1));
  const auto json = nlohmann::json::parse(
      stats_json(mount_info(), metrics, R"([{"name":"default"}])", R"({"job":{"self":3}})",
                 {{"reads_failed", 3, "3 reads failed", "\xff/y"}, {"nvme_full", 1, "full", ""}}));
  CHECK(json["daemon"]["pid"] == 4711);
  CHECK(json["daemon"]["control_socket"] == "clairfs.1.2");
  CHECK(json["source"] == "/pfs/im \"ages\"\n");
  CHECK(json["plan_list"][0]["name"] == "default");
  CHECK(json["job"]["self"] == 3);
  CHECK(json["troubles"][0]["kind"] == "reads_failed");
  CHECK(json["troubles"][0]["count"] == 3);
  CHECK(json["troubles"][0].contains("first"));
  CHECK(!json["troubles"][1].contains("first"));
  CHECK(json["pfs"]["bytes"] == 12345);
  CHECK(json["tiers"]["ram"]["chunks"] == -1);
  CHECK(json["pfs"]["latency"]["count"] == 1);
  for (const MetricInfo& metric : metric_table()) {
    CAPTURE(metric.path);
    const bool seconds = metric.unit == MetricUnit::nanoseconds &&
                         !std::holds_alternative<Histogram Metrics::*>(metric.member);
    std::string pointer = "/" + std::string(metric.path) + (seconds ? "_seconds" : "");
    std::replace(pointer.begin(), pointer.end(), '.', '/');
    CHECK(json.contains(nlohmann::json::json_pointer(pointer)));
  }
}

TEST_CASE("status tells of troubles only where there are some") {
  Metrics metrics;
  metrics.bytes_ram.add(3 << 20);
  metrics.reads_ram.add(3);
  const std::string good = status_text(mount_info(), metrics, "no plans\n");
  CHECK(contains(good, "mountpoint  /mnt/data"));
  CHECK(contains(good, "pid 4711"));
  CHECK(contains(good, "no plans"));
  CHECK(contains(good, "  none\n"));
  CHECK(contains(good, "NVMe        none"));
  CHECK(!contains(good, "left out"));
  CHECK(contains(good, "source      /pfs/im \"ages\"\\n\n"));  // one line, whatever its name
  metrics.catalog_unreadable.set(1);
  const std::string bad = status_text(mount_info(), metrics, "no plans\n", "",
                                      {{"dirty_writes", 2, "2 writes to dataset files", "a.bin, by python3"},
                                       {"reads_failed", 3, "3 reads failed", "x/y"},
                                       {"nvme_disabled", 1, "1 NVMe directory is switched off", ""}});
  CHECK(contains(bad, "Troubles\n  2 writes to dataset files\n    the last: a.bin, by python3\n"));
  CHECK(contains(bad, "  3 reads failed\n    the first: x/y\n"));
  CHECK(contains(bad, "  1 NVMe directory is switched off\n"));
  CHECK(contains(bad, "            1 entry could not be read\n"));
}
