#include "plan/inference/seeds/plausible_orders.h"

#include <random>
#include <string>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/reader_model.h"

using namespace clairfs;

namespace {

constexpr uint32_t kMany = 50'000;

PlausibleOrders orders_of(const std::string& real, uint64_t seeds = 1'000'000) {
  AccessSequence read = plan_over(kMany, real + " batch=16 workers=2");
  const Samples order = order_of(read, 0);
  std::mt19937 random(5);
  std::vector<uint32_t> seen;
  LoaderModel(kMany, {1, 16, 2}, random).run([&](uint32_t position) {
    seen.push_back(order[position]);
    return seen.size() < 60;
  });
  return plausible_orders(kMany, seen, {.end = seeds, .when_idle = false});
}

}  // namespace

TEST_CASE("torch's samplers are known by any seed up to a million") {
  const PlausibleOrders distributed = orders_of("sampler=torch.distributed seed=654321");
  REQUIRE(distributed.orders.size() == 1);
  CHECK(distributed.orders[0].sampler == "torch.distributed");
  CHECK(distributed.orders[0].seed == "654321");
  const PlausibleOrders drawn = orders_of("sampler=torch.random seed=20240229");
  CHECK(drawn.orders.empty());       // beyond what was asked for
  CHECK(drawn.tested == 4'000'000);  // of both samplers, in both passes
  const PlausibleOrders date = orders_of("sampler=torch.random seed=240229");
  REQUIRE(date.orders.size() == 1);
  CHECK(date.orders[0].sampler == "torch.random");
  CHECK(date.orders[0].generator == "loader");
  CHECK(date.orders[0].seed == "240229");
}

TEST_CASE("an order of another library is none of torch's") {
  CHECK(orders_of("sampler=numpy.default_rng seed=7", 100'000).orders.empty());
  CHECK(orders_of("sampler=torch.distributed seed=654321", 654'321).orders.empty());
}
