#include "plan/tracking/interleaving.h"

#include <algorithm>
#include <random>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/reader_model.h"

using namespace clairfs;

namespace {

// The first opens of an epoch of 100,000 samples, with a share of them somebody else's.
std::vector<uint32_t> first_opens(LoaderModel::Loader loader, size_t count, double strays, uint32_t seed) {
  std::mt19937 random(seed);
  LoaderModel model(100000, loader, random);
  std::vector<uint32_t> positions;
  model.run([&](uint32_t position) {
    if (std::bernoulli_distribution(strays)(random))
      positions.push_back(static_cast<uint32_t>(random() % 100000));
    positions.push_back(position);
    return positions.size() < count;
  });
  return positions;
}

}  // namespace

TEST_CASE("batch and workers are told from the first opens of an epoch") {
  uint32_t told = 0;
  for (const LoaderModel::Loader& loader :
       {LoaderModel::Loader{1, 64, 4}, {1, 64, 2}, {1, 32, 8}, {1, 100, 3}, {1, 256, 12}, {1, 17, 5}}) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
      INFO("batch=" << loader.batch << " workers=" << loader.workers << " seed=" << seed);
      const auto found = find_interleaving(first_opens(loader, 64, 0, seed), 0);
      // Of many workers some may have opened nothing yet, or have only just begun.
      if (!found) CHECK(loader.workers >= 8);
      if (!found) continue;
      ++told;
      CHECK(found->batch == loader.batch);
      CHECK(found->workers <= loader.workers);
      CHECK((found->workers == loader.workers || loader.workers > 8));
    }
  }
  CHECK(told > 90);  // of 120
}

TEST_CASE("how many workers there are is not told before the last of them may have begun") {
  const LoaderModel::Loader loader{1, 100, 8};
  uint32_t wrong = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    for (const size_t opens : {8, 12, 16, 24, 32, 48}) {
      const auto found = find_interleaving(first_opens(loader, opens, 0, seed), 0);
      if (found && found->workers != loader.workers) ++wrong;
    }
  }
  CHECK(wrong < 50);  // of 600
}

TEST_CASE("what was opened before does not begin a batch, and one open in fifty may be a stranger's") {
  const LoaderModel::Loader loader{1, 32, 8};
  uint32_t right = 0;
  uint32_t told = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    std::vector<uint32_t> positions = first_opens(loader, 64, 0, seed);
    const auto high_water = static_cast<uint32_t>(
        std::count_if(positions.begin(), positions.end(), [](uint32_t position) { return position < 32; }));
    std::erase_if(positions, [](uint32_t position) { return position < 3; });
    const auto later = find_interleaving(positions, std::min(high_water, 3U));
    if (later) CHECK((later->batch == 32 && later->workers == 8));
    if (later) ++told;
    const auto disturbed = find_interleaving(first_opens(loader, 64, 0.02, seed), 0);
    if (disturbed && disturbed->batch == 32) ++right;
  }
  CHECK(right > 40);
  CHECK(told > 80);
}

TEST_CASE("one worker, no opens and a random order deal nothing") {
  CHECK(!find_interleaving({}, 0));
  CHECK(!find_interleaving(first_opens({1, 64, 0}, 64, 0, 1), 0));
  CHECK(!find_interleaving(first_opens({1, 64, 1}, 64, 0, 1), 0));
  std::mt19937 random(1);
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<uint32_t> positions(64);
    for (uint32_t& position : positions) position = static_cast<uint32_t>(random() % 1000000);
    CHECK(!find_interleaving(positions, 0));
  }
  const std::vector<uint32_t> far{4000000000, 4000000000, 0};
  CHECK(!find_interleaving(far, 0));
}
