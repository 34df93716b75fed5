#include "plan/simulator/model/performance_model.h"

#include "plan/simulator/scenario/throughput_table.h"
#include "tests/support/catch.h"
#include "tests/unit/plan/simulator/scenario_support.h"

using namespace clairfs;

TEST_CASE("throughput table: linear between its points, constant outside") {
  const auto table = ThroughputTable::make({{4, 146}, {1, 66}, {2, 86}});
  REQUIRE(table);
  CHECK(table->at(1) == 66);
  CHECK(table->at(2) == 86);
  CHECK(table->at(3) == 116);
  CHECK(table->at(4) == 146);
  CHECK(table->at(100) == 146);
  CHECK(ThroughputTable::make({{2, 10}})->at(1) == 10);
  CHECK(!ThroughputTable::make({}));
  CHECK(!ThroughputTable::make({{1, 5}, {1, 6}}));
}

TEST_CASE("performance model: the equations, as the published simulator has them") {
  const Scenario s = tiny_scenario();
  const PerformanceModel model(s);
  CHECK(model.compute(3) == Approx(3.0 / 20));
  CHECK(model.write(2) == Approx(2.0 / 1000));               // preprocessing is slower than 4000
  CHECK(model.fetch_pfs(2, {1, 1, 1}) == Approx(2.0 / 10));  // t(1)
  CHECK(model.fetch_pfs(2, {2, 1, 2}) == Approx(2.0 / 8));   // t(2)/2
  CHECK(model.fetch_pfs(2, {2, 4, 8}) == Approx(2.0 / 8));   // each thread gets it whole
  CHECK(model.fetch_local(2, 1) == Approx(2.0 / 160));       // r_2(2), not divided by 2
  CHECK(model.fetch_peer(2, 1) == Approx(2.0 / 160));
  CHECK(model.fetch_peer(2, 0) == Approx(2.0 / 500));  // the network is slower than memory
  CHECK(model.fill(2, 1) == Approx(2.0 / 1000));
}

TEST_CASE("performance model: threads share what they have in the other model") {
  const Scenario s = tiny_scenario({{"model.reads", "divided"},
                                    {"model.pfs", "per-worker"},
                                    {"model.fills", "raw"},
                                    {"class.nvme.write", "{2 = 40}"},
                                    {"class.nvme.latency_ms", "10"},
                                    {"worker.network_latency_ms", "1"},
                                    {"pfs.latency_ms", "5"}});
  const PerformanceModel model(s);
  CHECK(model.fetch_pfs(2, {2, 4, 8}) == Approx(0.005 + 2.0 / 8 * 4));
  CHECK(model.fetch_local(2, 1) == Approx(0.01 + 2.0 / 80));
  CHECK(model.fetch_peer(2, 1) == Approx(0.001 + 0.01 + 2.0 / 80));
  CHECK(model.fill(2, 0) == 0);
  CHECK(model.fill(2, 1) == Approx(2.0 / 20));
}

TEST_CASE("performance model: the PFS by reader, and the link to it") {
  const Scenario s =
      tiny_scenario({{"model.pfs", "per-reader"}, {"pfs.read", "{1 = 10, 8 = 80}"}, {"pfs_network", "15"}});
  const PerformanceModel model(s);
  CHECK(model.fetch_pfs(1, {2, 1, 4}) == Approx(1.0 / 10));  // 40 for four
  CHECK(model.fetch_pfs(1, {2, 3, 4}) == Approx(1.0 / 5));   // three of them share the worker's link
}

TEST_CASE("performance model: writing to the staging buffer is bound by memory or by preprocessing") {
  const Scenario s = tiny_scenario({{"staging.threads", "4"}, {"staging.read", "{1 = 1000, 4 = 2000}"}});
  CHECK(PerformanceModel(s).write(1) == Approx(4.0 / 2000));
  const Scenario written = tiny_scenario({{"staging.write", "{1 = 100}"}});
  CHECK(PerformanceModel(written).write(1) == Approx(1.0 / 100));
}
