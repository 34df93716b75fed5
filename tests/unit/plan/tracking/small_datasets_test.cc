// Datasets of some hundred samples: what strays hits the reader's band often, and that of the next epoch.
#include "plan/tracking/tracker.h"
#include "tests/support/catch.h"
#include "tests/support/reader_model.h"

using namespace clairfs;

namespace {

constexpr uint32_t kSome = 400;
const LoaderModel::Loader kFourWorkers{1, 8, 4, 2};

// Of so many runs of three epochs with 5 % of strays those in which the plan was suspended.
uint32_t suspended_by_strays(uint32_t runs) {
  uint32_t suspended = 0;
  for (uint32_t seed = 1; seed <= runs; ++seed) {
    AccessSequence plan = plan_over(kSome, "batch=8 workers=4 seed=" + std::to_string(seed));
    std::mt19937 random(seed);
    MountModel mount(plan, kSome, {true, 64, 600});
    for (uint32_t epoch = 0; epoch < 3; ++epoch) {
      const Samples order = order_of(plan, epoch);
      LoaderModel(kSome, kFourWorkers, random).run([&](uint32_t position) {
        mount.open(order[position]);
        if (random() % 20 == 0) mount.open(random() % kSome);
        return true;
      });
    }
    suspended += mount.tracker.status().suspensions > 0 ? 1 : 0;
  }
  return suspended;
}

}  // namespace

TEST_CASE("stray accesses do not suspend the plan of a small dataset") {
  CHECK(suspended_by_strays(20) <= 8);
}
