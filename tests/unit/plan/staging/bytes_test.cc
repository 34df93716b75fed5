// What plan, policy, cache and staging together read from the source, against the least that is possible.
#include <random>

#include "tests/support/belady.h"
#include "tests/support/catch.h"
#include "tests/support/staging_fixture.h"

using namespace clairfs;

namespace {

constexpr uint64_t kFile = 64 << 10;
constexpr uint32_t kFiles = 2048;
constexpr uint32_t kEpochs = 4;
constexpr const char* kPlan = "seed=5 format=files epochs=4";

/// Gives staging its turns until it is `staged`. Fetches complete in any order, and only as many as are
/// needed for that or to have less than 30 under way.
void stage_until(StagingFixture& f, uint64_t staged, std::mt19937& random) {
  f.settle();
  while (f.source.pending() >= 30 || f.staged() < staged) {
    REQUIRE(f.source.pending() > 0);
    f.source.complete_at(random());
    f.settle();
  }
}

/// Reads all epochs, never ahead of staging. Returns the samples in their order.
std::vector<uint32_t> read_all(StagingFixture& f) {
  constexpr uint64_t kLead = 25;
  constexpr uint64_t kEnd = uint64_t{kFiles} * kEpochs;
  std::vector<uint32_t> order;
  std::mt19937 random(3);
  for (uint64_t p = 0; p < kEnd; ++p) {
    stage_until(f, std::min(p + kLead, kEnd), random);
    order.push_back(f.run->reader().timeline().sample_at(p));
    f.read_next(p);
  }
  return order;
}

struct TierSizes {
  double ram = 0;  // of S
  double nvme = 0;
};

const std::initializer_list<TierSizes> kTiers = {{0.25, 0},    {0.5, 0},    {0.75, 0}, {1.2, 0},
                                                 {0.25, 0.25}, {0.25, 0.5}, {0, 0.5}};

void check_least_work(const TierSizes& size, bool immediate) {
  StagingOver over;
  over.sizes.assign(kFiles, kFile);
  over.ram = static_cast<uint64_t>(size.ram * kFiles) * kFile;
  over.nvme = static_cast<uint64_t>(size.nvme * kFiles) * kFile;
  over.immediate = immediate;
  over.budget = (over.immediate ? 40 : 700) * kFile;
  StagingFixture f(over, kPlan);
  const LeastWork least = least_work(read_all(f), (over.ram + over.nvme) / kFile);
  f.source.complete_all();
  const uint64_t evictions = f.metrics.ram_evictions.value() + f.metrics.nvme_evictions.value();
  INFO("RAM " << size.ram << " S, NVMe " << size.nvme << " S, window " << over.budget / kFile << ": fetched "
              << f.source.fetches << " of " << least.fetches << ", evicted " << evictions << " of "
              << least.evictions);
  // Less is possible, too: what passes through transit memory may be used again before it leaves.
  CHECK(f.source.fetches <= least.fetches + least.fetches / 500);
  CHECK(evictions <= least.evictions + least.evictions / 50);
}

}  // namespace

TEST_CASE("staging fetches and evicts no more than the best cache of that size") {
  check_least_work(GENERATE(values<TierSizes>(kTiers)), true);
}

TEST_CASE("staging from a slow source fetches and evicts no more than the best cache of that size") {
  check_least_work(GENERATE(values<TierSizes>(kTiers)), false);
}
