// What the policies keep, where, and what they do to the order.
#include "plan/simulator/policies/policies.h"

#include <algorithm>
#include <set>

#include "tests/support/catch.h"
#include "tests/unit/plan/simulator/scenario_support.h"

using namespace clairfs;

namespace {

/// A job and the strategy that a policy has for it.
struct Fixture {
  explicit Fixture(const Scenario& s, std::string_view policy)
      : scenario(s),
        sizes(s.samples, static_cast<float>(s.mean)),
        model(scenario),
        job(std::move(*JobOrder::make(scenario, s.samples))) {
    auto made = find_policy(policy)->make(PolicyInput{scenario, sizes, model, job});
    INFO(policy << ": " << (made ? "" : made.error().message));
    REQUIRE(made);
    strategy = std::move(*made);
  }

  /// Samples that a worker keeps in a class.
  std::set<uint32_t> kept(uint32_t worker, uint32_t storage) {
    std::set<uint32_t> samples;
    for (uint32_t sample = 0; sample < sizes.size(); ++sample) {
      const Holding* copy = strategy.holdings.find(sample, worker);
      if (copy != nullptr && copy->storage == storage) samples.insert(sample);
    }
    return samples;
  }
  std::vector<uint32_t> reads(uint32_t worker, uint32_t epoch, bool reordered = true) {
    EpochOrder order = *job.order(epoch);
    if (reordered && strategy.reorder) strategy.reorder(epoch, order);
    std::vector<uint32_t> samples;
    for (uint64_t k = 0; k < job.share(worker).count(); ++k)
      samples.push_back(job.share(worker).sample(order, k));
    return samples;
  }

  Scenario scenario;
  std::vector<float> sizes;
  PerformanceModel model;
  JobOrder job;
  Strategy strategy;
};

Scenario job(const std::vector<std::pair<std::string, std::string>>& more = {}) {
  std::vector<std::pair<std::string, std::string>> changes = {{"workers", "4"}, {"samples.count", "80"},
                                                              {"batch", "8"},   {"epochs", "5"},
                                                              {"ram", "5"},     {"nvme", "10"}};
  changes.insert(changes.end(), more.begin(), more.end());
  return tiny_scenario(changes);
}

}  // namespace

TEST_CASE("policies: names, found and listed") {
  CHECK(policy_names() ==
        "lower-bound, naive, staging, deepio-ordered, deepio-opportunistic, parallel-staging, lbann-dynamic, "
        "lbann-preload, locality-aware, nopfs, clairfs");
  for (const Policy& policy : all_policies()) CHECK(find_policy(policy.name) == &policy);
  CHECK(find_policy("magic") == nullptr);
}

TEST_CASE("policies: only those that say so change the order") {
  for (const Policy& policy : all_policies()) {
    INFO(policy.name);
    const Scenario s = policy.name.starts_with("lbann") ? job({{"ram", "20"}}) : job();
    Fixture f(s, policy.name);
    CHECK((f.strategy.reorder == nullptr) == policy.keeps_order);
  }
}

TEST_CASE("deepio loads disjoint parts, without a gap when not all of it fits") {
  Fixture f(job(), "deepio-ordered");
  for (uint32_t w = 0; w < 4; ++w) {
    std::set<uint32_t> expected;
    for (uint32_t sample = 5 * w; sample < 5 * w + 5; ++sample) expected.insert(sample);
    CHECK(f.kept(w, 0) == expected);
  }
  Fixture all(job({{"ram", "20"}}), "deepio-ordered");
  CHECK(all.kept(3, 0).size() == 20);
  CHECK(*all.kept(3, 0).begin() == 60);
}

TEST_CASE("deepio in opportunistic mode reads only what the worker or its neighbour has") {
  Fixture f(job(), "deepio-opportunistic");
  for (uint32_t w = 0; w < 4; ++w) {
    for (const uint32_t sample : f.reads(w, 1)) {
      CHECK((f.strategy.holdings.find(sample, w) != nullptr ||
             f.strategy.holdings.find(sample, (w + 1) % 4) != nullptr));
    }
  }
}

TEST_CASE("parallel staging reads local samples only: its own part, then others' as they fit") {
  Fixture f(job({{"nvme", "30"}}), "parallel-staging");
  REQUIRE(f.strategy.everywhere == 1);
  // Worker 1 has 20 to 39 and, of the others', 0 to 9.
  std::set<uint32_t> seen;
  for (uint32_t epoch = 0; epoch < 50; ++epoch) {
    for (const uint32_t sample : f.reads(1, epoch)) seen.insert(sample);
  }
  CHECK(seen.size() == 30);
  CHECK(*seen.begin() == 0);
  CHECK(*seen.rbegin() == 39);
  CHECK_FALSE(seen.contains(10));
  CHECK(f.strategy.prepared_mb == BySource{80, 40, 0});
}

TEST_CASE("locality-aware deals each batch anew and loses nothing of it") {
  Fixture f(job({{"nvme", "15"}}), "locality-aware");
  for (uint32_t epoch = 0; epoch < 3; ++epoch) {
    EpochOrder before = *f.job.order(epoch);
    EpochOrder after = before;
    f.strategy.reorder(epoch, after);
    size_t local = 0;
    for (size_t batch = 0; batch < before.size(); batch += 8) {
      auto from = before.begin() + static_cast<ptrdiff_t>(batch);
      auto to = after.begin() + static_cast<ptrdiff_t>(batch);
      CHECK(std::is_permutation(from, from + 8, to));
      for (size_t at = 0; at < 8; ++at) {
        if (f.strategy.holdings.find(to[static_cast<ptrdiff_t>(at)], static_cast<uint32_t>(at / 2)) !=
            nullptr)
          ++local;
      }
    }
    // Of 80 samples 60 are kept by somebody; few of them find their keeper's places of the batch taken.
    CHECK(local >= 40);
  }
}

TEST_CASE("lbann keeps in the first epoch what it reads") {
  Fixture f(job({{"ram", "20"}}), "lbann-dynamic");
  for (uint32_t w = 0; w < 4; ++w) {
    const auto reads = f.reads(w, 0);
    CHECK(f.kept(w, 0) == std::set<uint32_t>(reads.begin(), reads.end()));
    CHECK(f.strategy.fills[w].samples == reads);
  }
}

TEST_CASE(
    "nopfs keeps what each worker reads most, the most in the fastest class, in the order of first use") {
  Fixture f(job(), "nopfs");
  for (uint32_t w = 0; w < 4; ++w) {
    std::vector<int> uses(80);
    std::vector<uint32_t> first;
    for (uint32_t epoch = 0; epoch < 5; ++epoch) {
      for (const uint32_t sample : f.reads(w, epoch)) {
        if (uses[sample]++ == 0) first.push_back(sample);
      }
    }
    const auto ram = f.kept(w, 0);
    const auto nvme = f.kept(w, 1);
    CHECK(ram.size() == 5);
    CHECK(nvme.size() == 10);
    int least_ram = 100;
    int least_nvme = 100;
    for (const uint32_t sample : ram) least_ram = std::min(least_ram, uses[sample]);
    for (const uint32_t sample : nvme) {
      CHECK(uses[sample] <= least_ram);
      least_nvme = std::min(least_nvme, uses[sample]);
    }
    for (uint32_t sample = 0; sample < 80; ++sample) {
      if (!ram.contains(sample) && !nvme.contains(sample)) CHECK(uses[sample] <= least_nvme);
    }
    const FillQueue& queue = f.strategy.fills[2 * w];
    CHECK(queue.worker == w);
    std::vector<uint32_t> expected;
    std::copy_if(first.begin(), first.end(), std::back_inserter(expected),
                 [&](uint32_t sample) { return ram.contains(sample); });
    CHECK(queue.samples == expected);
  }
}

TEST_CASE(
    "clairfs gives every sample one home while there is room, and the bytes read from the PFS are the "
    "least") {
  // 4 workers keep 15 each, of 80: 20 have no home. Padding to pages is nothing at 1 MB.
  const Scenario s = job();
  Fixture f(s, "clairfs");
  uint32_t homeless = 0;
  for (uint32_t sample = 0; sample < 80; ++sample) {
    const size_t copies = f.strategy.holdings.of(sample).size();
    CHECK(copies <= 1);
    homeless += copies == 0 ? 1 : 0;
  }
  CHECK(homeless == 20);
  for (const char* order : {"by-worker", "by-time"}) {
    const Outcome outcome = run(job({{"model.order", order}}), "clairfs");
    CHECK(outcome.read_mb[0] == 80 + 4 * 20);  // S + (E - 1) (S - N D)
  }
}

TEST_CASE("clairfs reads a dataset that fits once, and keeps copies in the room that is left") {
  // A network slower than the NVMe: else what lies in another worker's RAM is not read from the own NVMe.
  for (const char* order : {"by-worker", "by-time"}) {
    const Scenario s = job({{"model.order", order}, {"network", "50"}, {"nvme", "60"}});
    const Outcome without =
        run(job({{"model.order", order}, {"network", "50"}, {"nvme", "15.1"}}), "clairfs");  // homes only
    Fixture f(s, "clairfs");
    CHECK(f.strategy.holdings.of(0).size() > 1);
    const Outcome outcome = run(s, "clairfs");
    CHECK(outcome.read_mb[0] == 80);
    CHECK(outcome.delivered_mb[2] > without.delivered_mb[2]);
    CHECK(without.read_mb[0] == 80);
  }
}

TEST_CASE("clairfs on one node reads no more than any cache must") {
  for (const char* order : {"by-worker", "by-time"}) {
    // 15 of 80 fit; 1 MB samples, so that the staging buffer of 2 keeps none over an epoch's end.
    const Outcome outcome = run(job({{"workers", "1"}, {"model.order", order}}), "clairfs");
    CHECK(outcome.read_mb[0] == 80 + 4 * 65);
  }
}
