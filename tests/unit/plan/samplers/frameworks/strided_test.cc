#include "tests/support/catch.h"
#include "tests/support/sampler_check.h"

using namespace clairfs;

namespace {

/// Caffe's DataLayer: every solver walks the whole ring and keeps what is its own (block = 1), LMDBIO's
/// readers take blocks.
std::vector<std::vector<uint32_t>> walk(uint32_t n, uint32_t world, uint32_t block, uint32_t rank,
                                        uint32_t epochs) {
  std::vector<std::vector<uint32_t>> read(epochs);
  for (uint64_t offset = 0; offset < uint64_t{n} * epochs; ++offset) {
    const bool keep = offset / block % world == rank;
    if (keep) read[offset / n].push_back(static_cast<uint32_t>(offset % n));
  }
  return read;
}

}  // namespace

TEST_CASE("strided readers go on over the end of the ring") {
  for (const uint32_t n : {1U, 2U, 7U, 10U, 64U}) {
    for (const uint32_t world : {1U, 2U, 3U, 5U, 9U}) {
      for (const uint32_t block : {1U, 2U, 3U, 8U, 100U}) {
        const auto sampler =
            sampler_of({.sampler = "strided", .n = n, .world = world, .args = {.block = block}});
        for (uint32_t rank = 0; rank < world; ++rank) {
          INFO("n " << n << " world " << world << " block " << block << " rank " << rank);
          const auto expected = walk(n, world, block, rank, 8);
          for (uint32_t epoch = 0; epoch < 8; ++epoch) {
            CHECK(indices_of(*sampler, epoch, rank) == expected[epoch]);
          }
        }
      }
    }
  }
}

TEST_CASE("a ring of nothing is refused, and a seed is not asked for") {
  CHECK(refusal_of({.sampler = "strided", .n = 0}).starts_with("n:"));
  CHECK(indices_of(*sampler_of({.sampler = "strided", .n = 5, .world = 2}), 0) ==
        std::vector<uint32_t>{0, 2, 4});  // without a block: sample by sample
  CHECK(spec_of({{"sampler", "Caffe"}, {"world", "2"}, {"block", "16"}}).args.block == 16);
}
