// What plan, policy, cache and staging together read from the source, against the least that is possible.
#include <random>
#include <thread>

#include <catch2/catch.hpp>

#include "tests/support/belady.h"
#include "tests/support/staging_fixture.h"

using namespace clairfs;
using namespace std::chrono_literals;

namespace {

constexpr uint64_t kFile = 64 << 10;
constexpr uint32_t kFiles = 2048;
constexpr uint32_t kEpochs = 4;
constexpr const char* kPlan = "seed=5 format=files epochs=4";

/// Completes fetches in any order, some time after they were asked for.
class SlowSource {
 public:
  explicit SlowSource(FakeSource& source) : source_(source) {}

 private:
  void run(const std::stop_token& stop) {
    std::mt19937 random(3);
    while (!stop.stop_requested()) {
      if (source_.pending() < 30) std::this_thread::sleep_for(300us);
      source_.complete_at(random());
    }
    source_.complete_all();
  }

  FakeSource& source_;
  std::jthread thread_{[this](const std::stop_token& stop) { run(stop); }};
};

/// Reads all epochs, never ahead of staging. Returns the samples in their order.
std::vector<uint32_t> read_all(StagingFixture& f) {
  constexpr uint64_t kLead = 25;
  constexpr uint64_t kEnd = uint64_t{kFiles} * kEpochs;
  std::vector<uint32_t> order;
  for (uint64_t p = 0; p < kEnd; ++p) {
    REQUIRE(StagingFixture::eventually([&] { return f.staged() >= std::min(p + kLead, kEnd); }));
    order.push_back(f.run->horizon().sample_at(p));
    f.read_next(p);
  }
  return order;
}

struct Tiers {
  double ram = 0;  // of S
  double nvme = 0;
};

const std::initializer_list<Tiers> kTiers = {{0.25, 0},    {0.5, 0},    {0.75, 0}, {1.2, 0},
                                             {0.25, 0.25}, {0.25, 0.5}, {0, 0.5}};

void check_least_work(const Tiers& size, bool immediate) {
  StagingOver over;
  over.sizes.assign(kFiles, kFile);
  over.ram = static_cast<uint64_t>(size.ram * kFiles) * kFile;
  over.nvme = static_cast<uint64_t>(size.nvme * kFiles) * kFile;
  over.immediate = immediate;
  over.budget = (over.immediate ? 40 : 700) * kFile;
  StagingFixture f(over, kPlan);
  std::optional<SlowSource> slow;
  if (!over.immediate) slow.emplace(f.source);
  const LeastWork least = least_work(read_all(f), (over.ram + over.nvme) / kFile);
  slow.reset();
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
  check_least_work(GENERATE(values<Tiers>(kTiers)), true);
}

TEST_CASE("staging from a slow source fetches and evicts no more than the best cache of that size") {
  check_least_work(GENERATE(values<Tiers>(kTiers)), false);
}
