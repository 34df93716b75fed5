#include "plan/inference/seeds/random_parts.h"

#include "plan/inference/seeds/seed_fit.h"
#include "plan/random/mt19937.h"
#include "plan/random/torch_random.h"

namespace clairfs {
namespace {

constexpr uint64_t kPercents[] = {80, 90, 70, 75, 50, 60, 95, 85, 20, 10};

}  // namespace

std::vector<RandomPart> usual_parts(uint64_t n) {
  std::vector<RandomPart> parts;
  for (const uint64_t percent : kPercents) {
    const uint64_t whole = n * percent / 100;
    const uint64_t more = n * percent % 100 == 0 ? 0 : 1;
    for (uint64_t size = whole; size <= whole + more; ++size) {
      if (size == 0 || size >= n) continue;
      parts.push_back({0, size});
      parts.push_back({size, n});
    }
  }
  return parts;
}

std::vector<uint32_t> places_in_split(std::span<const uint32_t> samples, uint64_t n, uint64_t seed) {
  std::vector<uint32_t> order(n);
  Mt19937 generator(static_cast<uint32_t>(seed));
  torch_randperm(generator, order, kNewestTorch);
  const Arrivals arrivals(samples);
  std::vector<uint32_t> places(samples.size());
  for (uint32_t place = 0; place < n; ++place) {
    const uint32_t arrival = arrivals.of(order[place]);
    if (arrival != Arrivals::kNever) places[arrival] = place;
  }
  return places;
}

}  // namespace clairfs
