// Small jobs that were worked out by hand, both ways of simulating.
#include "plan/simulator/engine/simulation.h"

#include "tests/support/catch.h"
#include "tests/unit/plan/simulator/scenario_support.h"

using namespace clairfs;

namespace {

constexpr double kCompute = 1.0 / 20;
constexpr double kWrite = 1.0 / 1000;
constexpr double kPfsAlone = 1.0 / 10;
constexpr double kPfsOfTwo = 1.0 / 8;

double pfs_stall(const Outcome& outcome) {
  return outcome.critical.stall[size_t(Source::pfs)];
}

}  // namespace

TEST_CASE("simulation: the lower bound is computing alone") {
  // Two batches; each worker computes one sample of each.
  const Outcome outcome = run(tiny_scenario(), "lower-bound");
  CHECK(outcome.runtime == Approx(2 * kCompute));
  CHECK(outcome.stalled() == 0);
  CHECK(outcome.read_mb == BySource{});
}

TEST_CASE("simulation: with a barrier the batch takes as long as its slowest worker") {
  const Scenario s = tiny_scenario({{"batch", "4"}});
  std::vector<float> sizes = {1, 1, 1, 3};
  const auto outcome = simulate(s, sizes, *find_policy("lower-bound"));
  REQUIRE(outcome);
  CHECK(outcome->runtime == Approx(4 * kCompute));  // the worker with the large sample
  CHECK(outcome->mean.compute == Approx(3 * kCompute));
  CHECK(outcome->barrier == Approx(1 * kCompute));
}

TEST_CASE("simulation by worker: the second worker has the PFS with the first, the first has it alone") {
  // Worker 0 is worked out first and sees nobody: 1/10. Worker 1 sees worker 0's read, which begins when its
  // own does.
  const Outcome outcome = run(tiny_scenario(), "naive");
  CHECK(outcome.runtime == Approx(2 * (kPfsOfTwo + kWrite + kCompute)));
  CHECK(pfs_stall(outcome) == Approx(2 * (kPfsOfTwo + kWrite)));
  CHECK(outcome.mean.stalled() == Approx(2 * (kPfsAlone + kPfsOfTwo) / 2 + 2 * kWrite));
  CHECK(outcome.read_mb == BySource{4, 0, 0});
  CHECK(outcome.delivered_mb == BySource{4, 0, 0});
}

TEST_CASE("simulation by time: g counts who is reading when a read begins") {
  const Scenario s = tiny_scenario({{"model.order", "by-time"}});
  const Outcome outcome = run(s, "naive");
  // Of two that begin at once the first still finds the PFS idle.
  CHECK(outcome.runtime == Approx(2 * (kPfsOfTwo + kWrite + kCompute)));
  CHECK(outcome.mean.stalled() == Approx(2 * (kPfsAlone + kPfsOfTwo) / 2 + 2 * kWrite));
}

TEST_CASE("simulation by time: a worker that computes does not read") {
  // One worker of the two computes all the time after its read: batches of 1 give worker 1 nothing to do.
  const Scenario s = tiny_scenario({{"model.order", "by-time"}, {"workers", "1"}, {"batch", "1"}});
  CHECK(run(s, "naive").runtime == Approx(4 * (kPfsAlone + kWrite + kCompute)));
}

TEST_CASE("simulation: computing waits for the whole batch if the scenario says so") {
  for (const char* order : {"by-worker", "by-time"}) {
    INFO(order);
    // One worker, two threads, two batches of two samples, and room for both samples of a batch.
    const Scenario s = tiny_scenario({{"model.order", order},
                                      {"workers", "1"},
                                      {"staging.threads", "2"},
                                      {"staging.write", "{1 = 8000}"},
                                      {"compute", "5"}});
    Scenario per_batch = s;
    REQUIRE(set_scenario_value(per_batch, "model.computing", "per-batch"));
    const double read = kPfsAlone + kWrite;
    const double compute = 1.0 / 5;  // of a sample: longer than a read
    // Both samples of the first batch come at once; those of the second are read while it computes.
    CHECK(run(per_batch, "staging").runtime == Approx(read + 4 * compute));
    CHECK(run(per_batch, "naive").runtime == Approx(4 * read + 4 * compute));
    // Without threads that read ahead of the second sample a worker that computes each is the slower.
    REQUIRE(set_scenario_value(per_batch, "staging.threads", "1"));
    Scenario per_sample = per_batch;
    REQUIRE(set_scenario_value(per_sample, "model.computing", "per-sample"));
    CHECK(run(per_batch, "staging").runtime == Approx(2 * read + 4 * compute));
    CHECK(run(per_sample, "staging").runtime == Approx(read + 4 * compute));
    CHECK(run(per_batch, "lower-bound").runtime == Approx(4 * compute));
  }
}

TEST_CASE("simulation: reading ahead hides what computing lasts") {
  for (const char* order : {"by-worker", "by-time"}) {
    INFO(order);
    // One worker, one thread, room for two samples: a read of 0.101 s takes longer than computing, 0.05 s.
    const Scenario s = tiny_scenario({{"model.order", order}, {"workers", "1"}, {"batch", "1"}});
    const Outcome outcome = run(s, "staging");
    CHECK(outcome.runtime == Approx(4 * (kPfsAlone + kWrite) + kCompute));
    CHECK(outcome.read_mb == BySource{4, 0, 0});
    // Two threads read two at once, each as fast as one alone.
    const Scenario two = tiny_scenario({{"model.order", order},
                                        {"workers", "1"},
                                        {"batch", "1"},
                                        {"staging.threads", "2"},
                                        {"staging", "4"}});
    CHECK(run(two, "staging").runtime == Approx(2 * (kPfsAlone + kWrite) + 2 * kCompute));
  }
}

TEST_CASE("simulation: a staging buffer without room for a sample is not used") {
  for (const char* order : {"by-worker", "by-time"}) {
    const Scenario s = tiny_scenario({{"model.order", order}, {"staging", "0.5"}});
    CHECK(run(s, "staging").runtime == Approx(run(s, "naive").runtime));
  }
}

TEST_CASE("simulation: threads of a worker share the PFS if the scenario says so") {
  const Scenario s = tiny_scenario({{"model.order", "by-time"},
                                    {"workers", "1"},
                                    {"batch", "1"},
                                    {"staging.threads", "2"},
                                    {"staging", "4"},
                                    {"model.pfs", "per-worker"}});
  // The first begins alone, the second at half speed; the third when the first is done, and so on.
  const double first = kPfsAlone + kWrite;
  const double second = 2 * kPfsAlone + kWrite;
  CHECK(run(s, "staging").runtime ==
        Approx(2 * second + first - kWrite - kPfsAlone + kWrite + kPfsAlone).margin(0.2));
  CHECK(run(s, "staging").runtime > 3.5 * kPfsAlone);  // never more than the PFS has
}

TEST_CASE("simulation: loading before the training takes its time and then local reads do not stall") {
  const Scenario s = tiny_scenario({{"ram", "2"}, {"epochs", "3"}});
  const Outcome outcome = run(s, "lbann-preload");
  CHECK(outcome.preparation ==
        Approx(2 * (kPfsOfTwo + kWrite)));  // two samples each, one thread, both at once
  CHECK(outcome.read_mb[0] == 4);
  CHECK(outcome.delivered_mb[0] == 0);
  CHECK(outcome.delivered_mb[1] + outcome.delivered_mb[2] == 12);
  // The first sample of each is fetched when the training begins; the others while it computes.
  const double first = 1.0 / 500 + kWrite;
  CHECK(outcome.runtime == Approx(outcome.preparation + 6 * kCompute).margin(2 * first));
}

TEST_CASE("simulation: what does not fit is refused with the reason, not an error") {
  const Outcome outcome = run(tiny_scenario(), "lbann-dynamic");
  CHECK(outcome.refusal == "the dataset (4 MB) is larger than the memory of all workers (2 MB)");
  CHECK(outcome.runtime == 0);
}

TEST_CASE("simulation: every policy adds up, reads what it delivers and is no faster than the lower bound") {
  const std::vector<std::vector<std::pair<std::string, std::string>>> scenarios = {
      {},
      {{"ram", "3"}, {"nvme", "0"}},
      {{"ram", "0"}, {"nvme", "0"}},
      {{"samples.count", "50"}, {"batch", "8"}, {"workers", "4"}, {"epochs", "3"}, {"staging.threads", "2"}},
      {{"samples.count", "50"}, {"batch", "7"}, {"workers", "3"}, {"epochs", "4"}, {"drop_last", "false"}},
      {{"samples.count", "40"},
       {"batch", "8"},
       {"workers", "4"},
       {"epochs", "2"},
       {"distribution", "imbalanced"}},
      {{"samples.count", "40"}, {"batch", "8"}, {"workers", "2"}, {"epochs", "2"}, {"distribution", "whole"}},
      {{"samples.count", "40"},
       {"batch", "8"},
       {"workers", "4"},
       {"epochs", "3"},
       {"sampler", "torch.distributed"}},
      {{"samples.count", "30"}, {"batch", "3"}, {"workers", "1"}, {"epochs", "3"}},
  };
  size_t runs = 0;
  for (const auto& changes : scenarios) {
    for (const auto& [order, computing] :
         {std::pair("by-worker", "per-sample"), {"by-time", "per-sample"}, {"by-time", "per-batch"}}) {
      Scenario s = tiny_scenario(changes);
      REQUIRE(set_scenario_value(s, "model.order", order));
      REQUIRE(set_scenario_value(s, "model.computing", computing));
      const Outcome bound = run(s, "lower-bound");
      const double delivered = run(s, "naive").delivered_mb[0];
      for (const Policy& policy : all_policies()) {
        INFO(policy.name << " " << order << " scenario " << (&changes - scenarios.data()));
        const Outcome o = run(s, policy.name);
        if (!o.refusal.empty() || policy.name == "lower-bound") continue;
        ++runs;
        CHECK(o.runtime == Approx(o.preparation + o.critical.compute + o.critical.stalled()));
        CHECK(o.runtime == Approx(o.preparation + o.mean.compute + o.mean.stalled() + o.barrier));
        CHECK(o.runtime >= bound.runtime * (1 - 1e-9));
        CHECK(o.delivered_mb[0] + o.delivered_mb[1] + o.delivered_mb[2] == Approx(delivered));
        for (size_t source = 0; source < kSources; ++source)
          CHECK(o.read_mb[source] >= o.delivered_mb[source] - 1e-6);
        double epochs = 0;
        for (const double seconds : o.epoch_seconds) epochs += seconds;
        CHECK(o.epoch_seconds.size() == s.epochs);
        CHECK(epochs == Approx(o.runtime));
      }
    }
  }
  CHECK(runs > 100);
}

TEST_CASE("simulation: progress goes from the first batch to the last") {
  for (const char* order : {"by-worker", "by-time"}) {
    const Scenario s = tiny_scenario({{"model.order", order}, {"epochs", "3"}});
    std::vector<uint64_t> seen;
    const std::vector<float> sizes(4, 1.0F);
    REQUIRE(simulate(s, sizes, *find_policy("staging"), [&](uint64_t done, uint64_t total) {
      CHECK(total == 6);
      seen.push_back(done);
    }));
    CHECK(seen == std::vector<uint64_t>{1, 2, 3, 4, 5, 6});
  }
}
