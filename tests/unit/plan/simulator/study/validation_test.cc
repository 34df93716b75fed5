// The published runtimes of the four scenarios (thesis, tables 5.1 to 5.4), against ours; and ours against
// the bounds that clairfs promises.
#include <map>

#include "plan/simulator/study/study.h"
#include "tests/support/captured_log.h"
#include "tests/support/catch.h"

using namespace clairfs;

namespace {

constexpr double kTolerance = 0.03;
constexpr double kNotPossible = 0;

const std::map<std::string, std::vector<double>> kPublished = {
    {"lower-bound", {7.30, 3825.66, 7655.25, 15204.78}},
    {"naive", {27.78, 15130.54, 30272.96, 60526.36}},
    {"nopfs", {7.78, 3836.12, 7661.26, 16795.17}},
    {"staging", {10.24, 4982.27, 9945.29, 19888.26}},
    {"deepio-ordered", {8.41, 4433.27, 23948.24, 54122.52}},
    {"deepio-opportunistic", {8.40, 4432.90, 8487.42, 16034.89}},
    {"parallel-staging", {10.11, 4972.65, 9313.58, 16861.82}},
    {"lbann-dynamic", {7.71, 4051.12, kNotPossible, kNotPossible}},
    {"lbann-preload", {8.41, 4433.27, kNotPossible, kNotPossible}},
    {"locality-aware", {8.41, 4433.27, 9314.33, 19082.99}},
};

Scenario small_cluster(int number) {
  const auto scenario = read_scenario(CLAIRFS_SOURCE_DIR "/examples/scenarios/small-cluster-" +
                                      std::to_string(number) + ".toml");
  REQUIRE(scenario);
  return *scenario;
}

StudyPoint simulate_all(const Scenario& scenario) {
  CapturedLog log;
  std::vector<const Policy*> policies;
  for (const Policy& policy : all_policies()) policies.push_back(&policy);
  const auto points = run_study(scenario, policies, {}, log.logger());
  REQUIRE(points);
  return points->front();
}

void check_scenario(int number) {
  const StudyPoint point = simulate_all(small_cluster(number));
  double clairfs_runtime = 0;
  for (const Outcome& outcome : point.outcomes) {
    if (outcome.policy->name == "clairfs") clairfs_runtime = outcome.runtime;
  }
  for (const Outcome& outcome : point.outcomes) {
    INFO("scenario " << number << ", " << outcome.policy->name << ": " << outcome.runtime << " s");
    const auto published = kPublished.find(std::string(outcome.policy->name));
    if (published != kPublished.end()) {
      const double seconds = published->second[static_cast<size_t>(number) - 1];
      CHECK(outcome.refusal.empty() == (seconds != kNotPossible));
      CHECK(outcome.runtime == Approx(seconds).epsilon(kTolerance));
    }
    const bool rival = outcome.refusal.empty() && outcome.policy->keeps_order &&
                       outcome.policy->name != "clairfs" && outcome.policy->name != "lower-bound";
    if (rival) CHECK(clairfs_runtime < outcome.runtime);
  }
  if (number <= 3) CHECK(clairfs_runtime <= 1.02 * point.lower_bound);
}

double nopfs_runtime(std::vector<std::pair<std::string, std::string>> changes) {
  Scenario scenario = small_cluster(3);
  for (const auto& [name, value] : changes) REQUIRE(set_scenario_value(scenario, name, value));
  CapturedLog log;
  const auto points = run_study(scenario, {find_policy("nopfs")}, {}, log.logger());
  REQUIRE(points);
  return points->front().outcomes.front().runtime;
}

}  // namespace

TEST_CASE("validation: published runtimes of small-cluster-1") {
  check_scenario(1);
}

TEST_CASE("validation: published runtimes of small-cluster-2") {
  check_scenario(2);
}

TEST_CASE("validation: published runtimes of small-cluster-3") {
  check_scenario(3);
}

TEST_CASE("validation: published runtimes of small-cluster-4") {
  check_scenario(4);
}

TEST_CASE("validation: the published study of the environment") {
  for (const char* staging : {"1G", "2G", "4G"}) {
    CHECK(nopfs_runtime({{"staging", staging}, {"ram", "0"}, {"nvme", "0"}}) ==
          Approx(9947).epsilon(kTolerance));
  }
  const std::pair<const char*, double> memory[] = {{"10G", 9554.47}, {"20G", 9239.67}, {"40G", 8613.13}};
  for (const auto& [ram, seconds] : memory) {
    INFO("RAM " << ram);
    CHECK(nopfs_runtime({{"staging", "4G"}, {"ram", ram}, {"nvme", "0"}}) ==
          Approx(seconds).epsilon(kTolerance));
  }
  const std::pair<const char*, double> storage[] = {{"20G", 9579.53}, {"40G", 9257.99}, {"80G", 8703.59}};
  for (const auto& [nvme, seconds] : storage) {
    INFO("storage " << nvme);
    CHECK(
        nopfs_runtime({{"staging", "4G"}, {"ram", "0"}, {"nvme", nvme}, {"class.nvme.read", "{2 = 100}"}}) ==
        Approx(seconds).epsilon(kTolerance));
  }
}
