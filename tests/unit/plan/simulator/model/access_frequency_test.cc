#include "plan/simulator/model/access_frequency.h"

#include <numeric>

#include "plan/offline/stats.h"
#include "tests/support/captured_log.h"
#include "tests/support/catch.h"
#include "tests/support/temp_tree.h"
#include "tests/unit/plan/simulator/scenario_support.h"

using namespace clairfs;

TEST_CASE("access frequency: binomial probabilities") {
  const auto two = binomial_probabilities(2, 0.25);
  REQUIRE(two.size() == 3);
  CHECK(two[0] == Approx(9.0 / 16));
  CHECK(two[1] == Approx(6.0 / 16));
  CHECK(two[2] == Approx(1.0 / 16));
  const auto many = binomial_probabilities(100000, 1.0 / 64);
  CHECK(std::accumulate(many.begin(), many.end(), 0.0) == Approx(1));
  CHECK(binomial_probabilities(3, 1).back() == 1);
}

TEST_CASE("access frequency: counted samples add up and follow the prediction") {
  const Scenario s =
      tiny_scenario({{"workers", "4"}, {"epochs", "20"}, {"samples.count", "20000"}, {"batch", "100"}});
  const auto frequencies = count_access_frequencies(s, s.samples);
  REQUIRE(frequencies);
  REQUIRE(frequencies->counted.size() == 21);
  CHECK(std::accumulate(frequencies->counted.begin(), frequencies->counted.end(), 0.0) == 20000);
  double reads = 0;
  for (size_t k = 0; k < 21; ++k) reads += static_cast<double>(k) * frequencies->counted[k];
  CHECK(reads == 20 * 5000);
  for (size_t k = 2; k < 9; ++k) {
    CHECK(frequencies->counted[k] ==
          Approx(frequencies->binomial[k]).margin(5 * std::sqrt(frequencies->binomial[k])));
  }
}

TEST_CASE("plan stats: the papers' example, about 323 samples above 275 reads") {
  CapturedLog log;
  const auto stats =
      plan_stats({"n=10000 epochs=1000 world=4 sampler=nopfs batch=100 drop_last=true seed=3", {0.1}, {}, 0},
                 log.logger());
  REQUIRE(stats);
  CHECK(stats->nodes == 4);
  CHECK(stats->mean == 250);
  REQUIRE(stats->tails.size() == 1);
  CHECK(stats->tails[0].reads == Approx(275));
  CHECK(stats->tails[0].expected == Approx(323).margin(0.5));
  CHECK(stats->tails[0].counted == Approx(323).margin(30));  // three deviations of a mean over four nodes
  CHECK_FALSE(stats->placed);
  CHECK(plan_stats_text(*stats).find("250 times on average (E/N)") != std::string::npos);
}

TEST_CASE("plan stats: the placement's shares") {
  CapturedLog log;
  PlanStatsRequest request;
  request.plan = "n=1000 epochs=5 world=4 ranks_per_node=1 batch=10 drop_last=true seed=3";
  request.sample_bytes = 1 << 20;
  request.capacity = NodeCapacity{100 << 20, uint64_t{100} << 20};
  auto stats = plan_stats(request, log.logger());
  REQUIRE(stats);
  REQUIRE(stats->placed);
  CHECK(stats->placed->all() == Approx(5000.0 * (1 << 20)));
  CHECK(stats->placed->pfs == Approx(1000.0 * (1 << 20)));  // 200 of 1000 have no home, in five epochs
  CHECK(stats->placed->prefill == Approx(800.0 * (1 << 20)));
  CHECK(stats->placed->local_ram > stats->placed->local_nvme);  // the most used lie in RAM
  CHECK(plan_stats_json(*stats).find("\"warm_up\": ") != std::string::npos);

  request.sample_bytes = 0;
  const auto unknown = plan_stats(request, log.logger());
  REQUIRE(!unknown);
  CHECK(unknown.error().message.find("root") != std::string::npos);
  request.plan = "n=70000 epochs=1 world=65535 ranks_per_node=1 seed=3";
  request.sample_bytes = 1;
  CHECK(plan_stats(request, log.logger()).error().message.find("at most 65534") != std::string::npos);
  CHECK(plan_stats({"n=10 seed=1", {0.1}, {}, 0}, log.logger()).error().message.find("epochs") !=
        std::string::npos);
}

TEST_CASE("plan stats: over a directory") {
  CapturedLog log;
  TempTree tree;
  for (int file = 0; file < 20; ++file) tree.write("f" + std::to_string(10 + file), 1000);
  PlanStatsRequest request;
  request.plan = "root=" + tree.path() + " format=files epochs=4 world=2 ranks_per_node=1 seed=3";
  request.capacity = NodeCapacity{10 << 12, 0};
  const auto stats = plan_stats(request, log.logger());
  REQUIRE(stats);
  CHECK(stats->samples == 20);
  CHECK(stats->placed->pfs == 0);
  CHECK(stats->placed->prefill == 20000);
}
