#include "plan/simulator/scenario/scenario.h"

#include <cerrno>
#include <filesystem>

#include "plan/simulator/scenario/sample_sizes.h"
#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/temp_tree.h"
#include "tests/unit/plan/simulator/scenario_support.h"

using namespace clairfs;

namespace {

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string error_of(const std::string& text) {
  const auto scenario = parse_scenario(text, "s.toml");
  INFO(text);
  REQUIRE(!scenario);
  CHECK(scenario.error().code == EINVAL);
  return scenario.error().message;
}

/// The error when `from` is replaced by `to` in the tiny scenario.
std::string error_with(const std::string& from, const std::string& to) {
  return error_of(replaced(kTinyScenario, from, to));
}

}  // namespace

TEST_CASE("scenario: every section is read") {
  const Scenario s = tiny_scenario();
  CHECK(s.name == "tiny");
  CHECK(s.workers == 2);
  CHECK(s.batch == 2);
  CHECK(s.drop_last);
  CHECK(s.staging.capacity == 2);
  REQUIRE(s.classes.size() == 2);
  CHECK(s.classes[0].name == "ram");
  CHECK(s.classes[1].threads == 2);
  CHECK(s.classes[1].read.at(2) == 160);
  CHECK(s.worker_capacity() == 11);
  CHECK(s.order == EvaluationOrder::by_worker);
}

TEST_CASE("scenario: sizes with a suffix are MB of 2^20 bytes") {
  CHECK(tiny_scenario({{"ram", "1G"}}).classes[0].capacity == 1024);
  CHECK(tiny_scenario({{"samples.mean", "512K"}}).mean == 0.5);
}

TEST_CASE("scenario: a missing key is named with its section's line") {
  CHECK(error_with("workers = 2\n", "") == "s.toml:1: workers: missing in [job]");
  CHECK(error_with("read = {1 = 10, 2 = 16}\n", "") == "s.toml:34: read: missing in [pfs]");
  CHECK(error_with("threads = 2\n", "") == "s.toml:29: threads: missing in [class.nvme]");
  CHECK(error_with("count = 4\n", "") == "s.toml:8: count: missing");
  CHECK(error_with("capacity = 2\n", "") == "s.toml:19: capacity: missing in [staging]");
  CHECK(error_with("[pfs]\n", "[model2]\n").find("s.toml:34: model2: no section; there are job, ") == 0);
}

TEST_CASE("scenario: a bad value is named with its line and what would be right") {
  CHECK(error_with("capacity = 1\n", "capacity = -1\n") == "s.toml:25: capacity: want at least 0");
  CHECK(error_with("capacity = 1\n", "capacity = \"many\"\n") ==
        "s.toml:25: capacity: want MB as a number, or a size such as \"50G\"");
  CHECK(error_with("capacity = 1\n", "capacity = 1e300\n").find("s.toml:25: capacity: want at most") == 0);
  CHECK(error_with("batch = 2\n", "batch = 3\nsampler = \"torch.distributed\"\n") ==
        "s.toml:4: batch: no multiple of workers, as torch.distributed needs");
  CHECK(error_with("workers = 2", "workers = 2.5") == "s.toml:2: workers: want a whole number");
  CHECK(error_with("workers = 2", "workers = 0") == "s.toml:2: workers: want 1 to 65534");
  CHECK(error_with("compute = 20", "compute = 0") == "s.toml:14: compute: want MB/s above 0");
  CHECK(error_with("drop_last = true", "drop_last = 1") == "s.toml:5: drop_last: want true or false");
  CHECK(error_with("\"fixed\"", "\"even\"") == "s.toml:9: size: want one of \"fixed\", \"normal\", \"path\"");
  CHECK(error_with("{1 = 10, 2 = 16}", "{}") == "s.toml:35: read: want at least one pair such as {1 = 66}");
  CHECK(error_with("{1 = 10, 2 = 16}", "{0 = 10}") ==
        "s.toml:35: read: threads or clients are counted from 1");
  CHECK(error_with("{1 = 10, 2 = 16}", "{1 = 0}") == "s.toml:35: read: a throughput is above 0 MB/s");
  CHECK(error_with("{1 = 10, 2 = 16}", "16").find("s.toml:35: read: want a table") == 0);
}

TEST_CASE("scenario: keys that are unknown, misplaced or contradict each other are named") {
  CHECK(error_with("workers = 2", "workers = 2\nworker = 3") ==
        "s.toml:3: worker: no key of [job], which has workers, epochs, batch, drop_last, distribution, "
        "sampler, "
        "seed");
  CHECK(error_of("x = 1\n" + kTinyScenario) == "s.toml:1: x: stands above the first [section]");
  CHECK(error_with("mean = 1", "mean = 1\ndeviation = 1") ==
        "s.toml:12: deviation: is for size = \"normal\" only");
  CHECK(error_with("count = 4", "count = 1") == "s.toml:10: count: with drop_last there is not one batch");
  CHECK(error_with("size = \"fixed\"", "size = \"path\"") ==
        "s.toml:8: path: missing; size = \"path\" reads the sizes from it");
  CHECK(error_with("size = \"fixed\"", "size = \"fixed\"\nrecords = \"format=npy\"")
            .ends_with("records: is for size = \"path\" only"));
  CHECK(error_with("[class.ram]", "[class.staging]").find("s.toml:24: class.staging: ") == 0);
}

TEST_CASE("scenario: a sweep sets classes by name and any key by section") {
  CHECK(tiny_scenario({{"nvme", "0"}}).classes[1].capacity == 0);
  CHECK(tiny_scenario({{"staging", "3G"}}).staging.capacity == 3072);
  CHECK(tiny_scenario({{"job.workers", "4"}}).workers == 4);
  CHECK(tiny_scenario({{"workers", "4"}}).workers == 4);
  CHECK(tiny_scenario({{"class.ram.threads", "3"}}).classes[0].threads == 3);
  CHECK(tiny_scenario({{"pfs.read", "{1 = 5}"}}).pfs.at(1) == 5);
  CHECK(tiny_scenario({{"distribution", "whole"}}).distribution == Distribution::whole);

  Scenario s = tiny_scenario();
  CHECK(set_scenario_value(s, "ssd", "1").error().message ==
        "unknown setting 'ssd'; use staging, ram, nvme or SECTION.KEY");
  CHECK(set_scenario_value(s, "ram", "-1").error().message == "ram = -1: want at least 0");
  CHECK(!set_scenario_value(s, "job.speed", "1"));
  CHECK(!set_scenario_value(s, "read", "{1 = 5}"));  // which of them?
  CHECK(!set_scenario_value(s, "count", "1"));       // not one batch
  CHECK(s.samples == 4);
}

TEST_CASE("scenario: a file that is not there is named") {
  const auto missing = read_scenario("/nonexistent/x.toml");
  REQUIRE(!missing);
  CHECK(missing.error().code == ENOENT);
  CHECK(missing.error().message.find("/nonexistent/x.toml") != std::string::npos);
}

TEST_CASE("scenario: every example can be read") {
  size_t examples = 0;
  for (const auto& entry : std::filesystem::directory_iterator(CLAIRFS_SOURCE_DIR "/examples/scenarios")) {
    const auto scenario = read_scenario(entry.path());
    INFO(entry.path());
    INFO((scenario ? "" : scenario.error().message));
    CHECK(scenario);
    ++examples;
  }
  CHECK(examples >= 5);
}

TEST_CASE("sample sizes: fixed, normal without negative ones, and of files") {
  CapturedLog log;
  CHECK(*make_sample_sizes(tiny_scenario(), log.logger()) == std::vector<float>(4, 1.0F));

  Scenario normal = tiny_scenario({{"samples.size", "normal"}, {"samples.count", "20000"}});
  normal.mean = 0.5;
  normal.deviation = 0.4;
  const auto drawn = make_sample_sizes(normal, log.logger());
  REQUIRE(drawn);
  REQUIRE(drawn->size() == 20000);
  CHECK(*std::min_element(drawn->begin(), drawn->end()) >= 0);
  // Mean of a normal distribution that is cut at -1.25 deviations.
  CHECK(std::accumulate(drawn->begin(), drawn->end(), 0.0) / 20000 == Approx(0.5817).epsilon(0.02));
  CHECK(*make_sample_sizes(normal, log.logger()) == *drawn);

  TempTree tree;
  tree.write("a/x", 1 << 20);
  tree.write("b", 512 << 10);
  Scenario files = tiny_scenario();
  files.size_source = SizeSource::path;
  files.path = tree.path();
  CHECK(*make_sample_sizes(files, log.logger()) == std::vector<float>{0.5F, 1.0F});  // breadth first
  files.path = tree.path() + "/nothing";
  CHECK(!make_sample_sizes(files, log.logger()));
  files.path = tree.path();
  files.records = "format=raw file=a/x record=262144";
  CHECK(*make_sample_sizes(files, log.logger()) == std::vector<float>(4, 0.25F));
  std::ofstream(tree.at("ranges")) << "0 524288 b\n10 262144 a/x\n";
  files.records = "format=ranges list=" + tree.at("ranges");
  CHECK(*make_sample_sizes(files, log.logger()) == std::vector<float>{0.5F, 0.25F});
  for (const char* wrong : {"format=raw file=c record=5", "format=lmdb file=b keys=cursor", "what=1"}) {
    files.records = wrong;
    CHECK(make_sample_sizes(files, log.logger()).error().message.starts_with("samples.records: plan"));
  }
}
