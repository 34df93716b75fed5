#include "plan/simulator/model/job_order.h"

#include <algorithm>

#include "tests/support/catch.h"
#include "tests/unit/plan/simulator/scenario_support.h"

using namespace clairfs;

namespace {

std::vector<uint32_t> samples_of(const JobOrder& job, const EpochOrder& order, uint32_t worker) {
  std::vector<uint32_t> samples;
  for (uint64_t k = 0; k < job.share(worker).count(); ++k)
    samples.push_back(job.share(worker).sample(order, k));
  return samples;
}

}  // namespace

TEST_CASE("job order: uniform takes what the sampler gives each rank") {
  for (const char* sampler : {"nopfs", "torch.distributed"}) {
    const Scenario s = tiny_scenario(
        {{"job.sampler", sampler}, {"samples.count", "22"}, {"job.batch", "6"}, {"job.drop_last", "false"}});
    auto job = JobOrder::make(s, s.samples);
    REQUIRE(job);
    SamplerSpec spec;
    spec.sampler = sampler;
    spec.n = 22;
    spec.world = 2;
    spec.batch = 6;
    spec.seed = "7";
    const auto real = make_sampler(spec);
    REQUIRE(real);
    for (uint32_t epoch = 0; epoch < 3; ++epoch) {
      const auto order = job->order(epoch);
      REQUIRE(order);
      for (uint32_t rank = 0; rank < 2; ++rank) {
        CHECK(samples_of(*job, *order, rank) ==
              (*real)->rank_order(Epoch(epoch), TrainingRank(rank))->to_vector());
      }
    }
    CHECK(job->steps() == 4);
    CHECK(job->share(0).step == 3);
  }
}

TEST_CASE("job order: drop_last leaves the incomplete batch out") {
  const Scenario s = tiny_scenario({{"samples.count", "7"}, {"job.batch", "4"}});
  const auto job = JobOrder::make(s, s.samples);
  REQUIRE(job);
  CHECK(job->steps() == 1);
  CHECK(job->share(0).count() == 2);
  CHECK(job->epoch_length() == 4);
}

TEST_CASE("job order: with whole batches everybody reads everything") {
  const Scenario s =
      tiny_scenario({{"distribution", "whole"}, {"samples.count", "5"}, {"job.drop_last", "false"}});
  auto job = JobOrder::make(s, s.samples);
  REQUIRE(job);
  const auto order = job->order(0);
  REQUIRE(order);
  CHECK(samples_of(*job, *order, 0) == *order);
  CHECK(samples_of(*job, *order, 1) == *order);
  CHECK(job->steps() == 3);
}

TEST_CASE("job order: imbalanced batches are dealt one to four, and completely") {
  const Scenario s = tiny_scenario(
      {{"distribution", "imbalanced"}, {"workers", "4"}, {"samples.count", "100"}, {"job.batch", "50"}});
  auto job = JobOrder::make(s, s.samples);
  REQUIRE(job);
  CHECK(job->share(0).step == 5);
  CHECK(job->share(1).step == 5);
  CHECK(job->share(2).step == 20);
  CHECK(job->share(3).step == 20);
  const auto order = job->order(0);
  REQUIRE(order);
  std::vector<uint32_t> all;
  for (uint32_t w = 0; w < 4; ++w) {
    const auto mine = samples_of(*job, *order, w);
    all.insert(all.end(), mine.begin(), mine.end());
  }
  std::sort(all.begin(), all.end());
  for (uint32_t sample = 0; sample < 100; ++sample) CHECK(all[sample] == sample);
}

TEST_CASE("job order: what the sampler cannot do is refused by key") {
  Scenario unknown = tiny_scenario();
  unknown.sampler = "dali";  // which no scenario file may say
  CHECK(JobOrder::make(unknown, 4).error().message.find("job.sampler: 'dali'") == 0);
  const Scenario odd = tiny_scenario({{"job.sampler", "torch.distributed"}, {"job.batch", "3"}});
  CHECK(JobOrder::make(odd, 4).error().message.find("job.batch: 3 is no multiple") == 0);
}

TEST_CASE("order window: epochs are made once each and let go of") {
  const Scenario s = tiny_scenario({{"job.epochs", "3"}});
  auto job = JobOrder::make(s, s.samples);
  REQUIRE(job);
  std::vector<uint32_t> made;
  OrderWindow window(*job, [&](uint32_t epoch, EpochOrder& order) {
    made.push_back(epoch);
    std::sort(order.begin(), order.end());
  });
  REQUIRE(window.get(1));
  CHECK(**window.get(0) == EpochOrder{0, 1, 2, 3});
  CHECK(made == std::vector<uint32_t>{0, 1});
  window.release_before(1);
  REQUIRE(window.get(2));
  REQUIRE(window.get(1));
  CHECK(made == std::vector<uint32_t>{0, 1, 2});
}
