#include "plan/inference/seeds/seed_kernels.h"

#include <algorithm>
#include <string>
#include <vector>

#include "plan/random/mt19937.h"
#include "tests/support/catch.h"

using namespace clairfs;

namespace {

std::vector<uint32_t> some_seeds() {
  std::vector<uint32_t> seeds = {0, 1, 42, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff};
  Mt19937 random(5);
  while (seeds.size() < kSeedBlock) seeds.push_back(random.next32());
  return seeds;
}

}  // namespace

TEST_CASE("every kernel writes the first outputs of MT19937, and nothing else") {
  const std::vector<uint32_t> seeds = some_seeds();
  for (const SeedKernel& kernel : seed_kernels()) {
    for (const size_t count : {size_t{1}, size_t{2}, size_t{9}, size_t{226}, kMostFirstOutputs}) {
      std::vector<uint32_t> out((count + 1) * kSeedBlock, 77);
      kernel.first_outputs(seeds.data(), count, out.data());
      INFO(kernel.name << ", " << count);
      size_t wrong = 0;
      for (size_t lane = 0; lane < kSeedBlock; ++lane) {
        Mt19937 generator(seeds[lane]);
        for (size_t i = 0; i < count; ++i) wrong += out[i * kSeedBlock + lane] != generator.next32() ? 1 : 0;
      }
      CHECK(wrong == 0);
      CHECK(std::count(out.end() - kSeedBlock, out.end(), 77U) == kSeedBlock);
    }
  }
}

TEST_CASE("there is always the portable kernel, after those of this CPU") {
  REQUIRE(!seed_kernels().empty());
  CHECK(std::string(seed_kernels().back().name) == "portable");
#if defined(__x86_64__)
  CHECK(seed_kernels().size() ==
        1U + (__builtin_cpu_supports("avx2") ? 1 : 0) + (__builtin_cpu_supports("avx512f") ? 1 : 0));
#endif
}
