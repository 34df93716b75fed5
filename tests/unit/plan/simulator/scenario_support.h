// Small scenarios that can be worked out by hand.
#pragma once

#include <string>
#include <vector>

#include "plan/simulator/engine/simulation.h"
#include "plan/simulator/scenario/scenario.h"
#include "tests/support/catch.h"

/// Two workers, four samples of 1 MB, batches of two; reading one takes 1/10 s from a PFS that nobody else
/// reads. Writing to the staging buffer takes 1/1000 s a MB, computing 1/20 s.
inline const std::string kTinyScenario = R"([job]
workers = 2
epochs = 1
batch = 2
drop_last = true
seed = 7

[samples]
size = "fixed"
count = 4
mean = 1

[worker]
compute = 20
preprocess = 1000
network = 500
pfs_network = 100

[staging]
capacity = 2
threads = 1
read = {1 = 4000}

[class.ram]
capacity = 1
threads = 1
read = {1 = 2000}

[class.nvme]
capacity = 10
threads = 2
read = {1 = 100, 2 = 160}

[pfs]
read = {1 = 10, 2 = 16}

[model]
reads = "undivided"
pfs = "per-thread"
fills = "processed"
computing = "per-sample"
order = "by-worker"
)";

inline clairfs::Scenario tiny_scenario(const std::vector<std::pair<std::string, std::string>>& changes = {}) {
  auto scenario = clairfs::parse_scenario(kTinyScenario, "tiny.toml");
  REQUIRE(scenario);
  for (const auto& [name, value] : changes) {
    const clairfs::Status set = clairfs::set_scenario_value(*scenario, name, value);
    INFO(name << " = " << value << ": " << set.error().message);
    REQUIRE(set);
  }
  return *scenario;
}

/// With all samples of `mean` MB.
inline clairfs::Outcome run(const clairfs::Scenario& scenario, std::string_view policy) {
  const std::vector<float> sizes(scenario.samples, static_cast<float>(scenario.mean));
  const auto outcome = clairfs::simulate(scenario, sizes, *clairfs::find_policy(policy));
  REQUIRE(outcome);
  return *outcome;
}
