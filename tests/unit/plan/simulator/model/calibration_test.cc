#include "plan/simulator/model/calibration.h"

#include <cerrno>
#include <filesystem>
#include <thread>

#include "plan/simulator/model/request_pump.h"
#include "plan/simulator/scenario/scenario.h"
#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/temp_tree.h"

using namespace clairfs;

namespace {

CalibrationOptions quick(const std::string& source, const std::string& nvme) {
  CalibrationOptions options;
  options.source = source;
  options.nvme = nvme;
  options.most_threads = 3;
  options.time = std::chrono::milliseconds(20);
  options.bytes = 16 << 20;
  return options;
}

}  // namespace

TEST_CASE("request pump: never more in flight than asked for, each slot used by one at a time") {
  const SteadyClock clock;
  std::vector<int> busy(3);
  int started = 0;
  std::vector<std::thread> threads;
  const auto result =
      run_pump({3, std::chrono::seconds(10), UINT64_MAX}, clock, [&](unsigned slot, PumpDone done) {
        if (started == 20) return false;
        ++started;
        REQUIRE(slot < 3);
        REQUIRE(++busy[slot] == 1);
        threads.emplace_back([&busy, slot, done = std::move(done)] {
          --busy[slot];
          done(uint64_t{100});
        });
        return true;
      });
  for (std::thread& thread : threads) thread.join();
  REQUIRE(result);
  CHECK(result->requests == 20);
  CHECK(result->bytes == 2000);
  CHECK(result->failed == 0);
}

TEST_CASE("request pump: ends at its limits and counts failures") {
  const SteadyClock clock;
  auto result = run_pump({1, std::chrono::seconds(10), 250}, clock, [](unsigned, const PumpDone& done) {
    done(uint64_t{100});
    return true;
  });
  REQUIRE(result);
  CHECK(result->bytes == 300);
  int left = 5;
  result = run_pump({2, std::chrono::seconds(10), UINT64_MAX}, clock, [&](unsigned, const PumpDone& done) {
    if (left-- == 0) return false;
    done(system_error(EIO, "read"));
    return true;
  });
  REQUIRE(result);
  CHECK(result->failed == 5);
  CHECK(result->first_failure->code == EIO);
}

TEST_CASE(
    "calibration: measures every table, leaves nothing behind, and writes a scenario that can be read") {
  TempTree source;
  TempTree nvme;
  for (int file = 0; file < 30; ++file) source.write("d/f" + std::to_string(file), 20000);
  source.write("empty", 0);
  CapturedLog log;
  std::vector<double> progress;
  const CalibrationOptions options = quick(source.path(), nvme.path());
  const auto measured =
      calibrate(options, log.logger(), [&](const std::string&, double done) { progress.push_back(done); });
  INFO((measured ? "" : measured.error().message));
  REQUIRE(measured);
  CHECK(measured->files == 31);
  CHECK(measured->small_bytes == 20000);
  CHECK(measured->small_read_ms > 0);
  for (const Measurements& table :
       {measured->pfs, measured->nvme_read, measured->nvme_write, measured->memory}) {
    REQUIRE(table.size() == 3);
    CHECK(table[0].first == 1);
    CHECK(table[2].first == 3);
    for (const auto& [threads, rate] : table) CHECK(rate > 0);
  }
  CHECK(std::is_sorted(progress.begin(), progress.end()));
  CHECK(std::filesystem::is_empty(nvme.path()));

  const std::string text = calibration_scenario(*measured, options);
  const auto scenario = parse_scenario(text, "calibrated.toml");
  INFO(text);
  INFO((scenario ? "" : scenario.error().message));
  REQUIRE(scenario);
  CHECK(scenario->path == source.path());
  CHECK(scenario->classes.size() == 2);
  CHECK(scenario->pfs_sharing == PfsSharing::per_reader);
  CHECK(text.find("(not measured)") != std::string::npos);
}

TEST_CASE("calibration: without an NVMe directory, and what cannot be measured") {
  TempTree source;
  source.write("f", 100000);
  CapturedLog log;
  const auto measured = calibrate(quick(source.path(), ""), log.logger());
  REQUIRE(measured);
  CHECK(measured->nvme_read.empty());
  CHECK(measured->small_read_ms == 0);  // no file is small
  CHECK(parse_scenario(calibration_scenario(*measured, quick(source.path(), "")), "c.toml")->classes.size() ==
        1);

  TempTree empty;
  CHECK(calibrate(quick(empty.path(), ""), log.logger()).error().code == EINVAL);
  CHECK(calibrate(quick(source.path(), empty.path() + "/missing"), log.logger()).error().code == ENOENT);
  CHECK(!calibrate(quick(empty.path() + "/missing", ""), log.logger()));
}
