#include "plan/inference/seeds/first_samples.h"

#include <algorithm>
#include <array>

#include "plan/inference/seeds/seed_fit.h"
#include "plan/random/mt19937.h"
#include "tests/support/catch.h"

using namespace clairfs;

TEST_CASE("remainders are those of a division") {
  Mt19937 random(1);
  size_t wrong = 0;
  for (const uint32_t divisor :
       {1U, 2U, 3U, 7U, 1000U, 1'281'167U, 0x7fffffffU, 0x80000000U, 0xfffffffeU, 0xffffffffU}) {
    const Remainder remainder(divisor);
    for (const uint32_t x :
         {0U, 1U, divisor - 1, divisor, divisor + 1, 2 * divisor - 1, 2 * divisor, 0xfffffffeU, 0xffffffffU})
      wrong += remainder.of(x) != x % divisor ? 1 : 0;
  }
  for (int i = 0; i < 200'000; ++i) {
    const uint32_t x = random.next32();
    const uint32_t divisor = std::max(random.next32() >> (i % 32), 1U);
    wrong += Remainder(divisor).of(x) != x % divisor ? 1 : 0;
    const uint32_t multiple = x / divisor * divisor;
    wrong += Remainder(divisor).of(multiple) != 0 ? 1 : 0;
  }
  CHECK(wrong == 0);
}

TEST_CASE("the first samples are those of the shuffle, also where it swaps a place twice") {
  std::array<uint32_t, kSeedBlock> seeds{};
  for (size_t lane = 0; lane < kSeedBlock; ++lane)
    seeds[lane] = static_cast<uint32_t>(lane * lane * 33'000'000);
  for (const uint64_t n :
       {uint64_t{1}, uint64_t{2}, uint64_t{5}, uint64_t{300}, uint64_t{1'281'167}, uint64_t{UINT32_MAX}}) {
    for (const size_t draws : {size_t{0}, size_t{2}, size_t{200}}) {
      for (const SeedKernel& kernel : seed_kernels()) {
        FirstSamples first(n, draws, kernel.first_outputs);
        CHECK(first.end() == std::min<uint64_t>(n, kMostFirstOutputs - draws));
        const size_t last = std::min<size_t>(first.end(), 40) - 1;
        first.begin(seeds.data(), last);
        size_t wrong = 0;
        for (size_t lane = 0; lane < kSeedBlock; ++lane) {
          PartialShuffle shuffle(n, last + 1);
          Mt19937 generator(seeds[lane]);
          generator.discard(draws);
          const auto order = shuffle.draw(generator);
          for (size_t place = 0; place <= last; ++place) {
            std::array<uint32_t, kSeedBlock> samples{};
            first.at(place, samples);
            wrong += samples[lane] != order[place] ? 1 : 0;
          }
        }
        INFO(n << ", " << draws << ", " << kernel.name);
        CHECK(wrong == 0);
      }
    }
  }
}
