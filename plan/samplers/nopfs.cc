// NoPFS / HDMLP: one minstd engine shuffles one vector, epoch after epoch.
// Source: spcl/NoPFS, branch old-nopfs, Sampler.cpp; Dryden et al., SC21. The order is the same for every
// GCC, because libstdc++ treats an engine of this range alike in all versions.
#include <limits>
#include <random>

#include "plan/random/libstdcxx_shuffle.h"
#include "plan/samplers/families.h"
#include "plan/samplers/support.h"

namespace clairfs {
namespace {

using Engine = std::minstd_rand0;  // libstdc++'s default_random_engine
using NopfsStream = EpochStream<Engine>;

class Nopfs : public Sampler {
 public:
  Nopfs(const SamplerSpec& spec, NopfsStream stream)
      : Sampler(spec.world),
        n_(spec.n),
        batch_(spec.batch),
        drop_last_(spec.drop_last),
        local_((batch_ + world() - 1) / world()),
        stream_(std::move(stream)) {}

  // Of each batch of all nodes, node r takes positions r * local to (r + 1) * local, cut at the batch's end.
  RankSlice slice(Epoch, TrainingRank node) const override {
    return batch_slice(n_, batch_, local_, node.value, drop_last_);
  }

 private:
  Result<IndexOrder> make_order(Epoch epoch) override {
    auto indices = stream_.order(epoch);
    if (!indices) return indices.error();
    return IndexOrder(*indices);
  }

  const uint64_t n_;
  const uint64_t batch_;
  const bool drop_last_;
  const uint64_t local_;  // positions of a node in a batch
  NopfsStream stream_;
};

}  // namespace

SamplerResult make_nopfs(const SamplerSpec& spec) {
  constexpr uint64_t kEngineRange = Engine::max() - Engine::min();
  if (spec.n > kEngineRange) return bad_key("n", "NoPFS is reproduced up to 2147483645 samples");
  const Result<BigInteger> seed = integer_seed(spec);
  if (!seed) return seed.error();
  const std::optional<int64_t> value = seed->as_int64();
  if (!value || *value < std::numeric_limits<int32_t>::min() ||
      *value > std::numeric_limits<int32_t>::max()) {
    return bad_key("seed", "NoPFS takes a C int, from -2^31 to 2^31 - 1");
  }
  const auto step = [n = spec.n](Engine& engine, Epoch, const NopfsStream::Indices& previous) {
    std::vector<uint32_t> order = previous ? *previous : ascending(n);
    libstdcxx_shuffle(order, engine, LibstdcxxShuffle::since_gcc11);
    return order;
  };
  const Engine engine(static_cast<uint64_t>(*value));  // a negative int becomes a 64-bit seed, as upstream
  return SamplerResult(std::make_unique<Nopfs>(spec, NopfsStream::cumulative(spec.n, engine, step)));
}

}  // namespace clairfs
