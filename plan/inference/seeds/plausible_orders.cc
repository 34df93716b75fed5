#include "plan/inference/seeds/plausible_orders.h"

#include <algorithm>
#include <string>
#include <utility>

namespace clairfs {
namespace {

struct Drawn {
  const char* sampler;
  const char* generator;
  uint32_t draws;  // between seeding and shuffling
};
constexpr Drawn kDrawn[] = {{"torch.distributed", "", 0}, {"torch.random", "loader", 2}};

}  // namespace

PlausibleOrders plausible_orders(uint64_t n, std::span<const uint32_t> first_seen,
                                 const SeedSearchOptions& how) {
  SeedSearchOptions rest = how;
  PlausibleOrders found;
  const auto some = first_seen.first(std::min(first_seen.size(), kEnoughOpens));
  for (const Drawn& drawn : kDrawn) {
    SeedEvidence evidence{.n = n, .first_seen = {some.begin(), some.end()}, .draws = drawn.draws};
    evidence.reach = widest_reach(evidence, rest, std::min(kLeastReach, n / 4));
    if (evidence.reach == 0) continue;
    const Result<SeedSearchResult> result = search_seeds(evidence, rest);
    if (!result) continue;
    found.tested += result->tested;
    found.core_seconds += result->core_seconds;
    rest.other_orders += static_cast<double>(result->tested);
    rest.core_seconds -= result->core_seconds;
    if (!result->found) continue;
    PlanSpec order;
    order.sampler = drawn.sampler;
    order.generator = drawn.generator;
    order.seed = std::to_string(result->found->seed);
    found.orders.push_back(std::move(order));
  }
  return found;
}

}  // namespace clairfs
