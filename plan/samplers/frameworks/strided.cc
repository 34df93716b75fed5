// Readers that deal records round robin and start over at the end without a break, as Caffe's DataLayer does
// and, in blocks, LMDBIO. The dataset is a ring: the epoch that ends within a round is continued by the next.
// Source: BVLC/caffe, src/caffe/layers/data_layer.cpp (Skip, Next); Pumma et al., TOPC 6(2), 2019.
#include <algorithm>

#include "plan/samplers/families.h"
#include "plan/samplers/support.h"

namespace clairfs {
namespace {

// On the ring that goes on over all epochs, rank r takes blocks r, r + world, r + 2 world ...
class Strided : public Sampler {
 public:
  Strided(uint32_t world, uint64_t n, uint64_t block) : Sampler(world), n_(n), block_(block) {}

  RankSlice slice(Epoch epoch, TrainingRank rank) const override {
    const uint64_t before = taken(epoch.value * n_, rank);
    // Positions past the order's end wrap around in RankOrder, so the ring's own positions will do.
    return RankSlice{.count = taken((uint64_t{epoch.value} + 1) * n_, rank) - before,
                     .start = rank.value * block_,
                     .stride = world() * block_,
                     .run = block_,
                     .skip = before};
  }

 private:
  // Samples of the rank among the ring's first `positions`.
  uint64_t taken(uint64_t positions, TrainingRank rank) const {
    return batch_slice(positions, world() * block_, block_, rank.value, false).count;
  }
  Result<IndexOrder> make_order(Epoch) override { return IndexOrder::identity(n_); }

  const uint64_t n_;
  const uint64_t block_;
};

}  // namespace

SamplerResult make_strided(const SamplerSpec& spec) {
  if (spec.n == 0) return bad_key("n", "a ring has at least one sample");
  return SamplerResult(std::make_unique<Strided>(spec.world, spec.n, std::max<uint64_t>(spec.args.block, 1)));
}

}  // namespace clairfs
