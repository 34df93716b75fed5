// NVIDIA DALI's FileReader: the order in which it opens files. Its `seed` and its random buffer only permute
// what it returns, so they do not matter here.
// Source: NVIDIA/DALI, dali/operators/reader/loader/{loader.h,file_label_loader.h,file_label_loader.cc}.
#include <random>

#include "plan/random/libstdcxx_shuffle.h"
#include "plan/samplers/families.h"
#include "plan/samplers/support.h"

namespace clairfs {
namespace {

// kDaliDataloaderSeed, on every shard. random_shuffle uses it as it is; shuffle_after_epoch adds the number
// of resets so far, and the first reset comes before epoch 0.
constexpr uint32_t kShuffleSeed = 524287;

struct NoGenerator {};  // each shuffle has an engine of its own; only the list goes on
using DaliStream = EpochStream<NoGenerator>;

std::vector<uint32_t> shuffled(std::vector<uint32_t> list, uint64_t resets, LibstdcxxShuffle family) {
  std::mt19937 engine(static_cast<uint32_t>(kShuffleSeed + resets));
  libstdcxx_shuffle(list, engine, family);
  return list;
}

uint64_t resets(Epoch epoch) {
  return uint64_t{epoch.value} + 1;
}

// Shards are contiguous parts of the list.
class Dali : public Sampler {
 public:
  explicit Dali(const SamplerSpec& spec)
      : Sampler(spec.world),
        n_(spec.n),
        counts_from_(spec.args.checkpointing ? 0 : spec.first_epoch),
        stick_to_shard_(spec.args.stick_to_shard || spec.args.shuffle_after_epoch),
        random_shuffle_(spec.args.random_shuffle),
        each_epoch_afresh_(spec.args.shuffle_after_epoch && spec.args.checkpointing),
        cumulative_(spec.args.shuffle_after_epoch && !spec.args.checkpointing),
        family_(spec.libstdcxx.value_or(LibstdcxxShuffle::since_gcc11)),
        stream_(DaliStream::cumulative(
            n_, {}, [this](NoGenerator&, Epoch epoch, const DaliStream::Indices& previous) {
              return shuffled(previous ? *previous : ascending(n_), resets(epoch), family_);
            })) {}

  // A reader that does not stick to its shard walks on: epoch e is shard (rank + e) mod world.
  RankSlice slice(Epoch epoch, TrainingRank rank) const override {
    const uint64_t walked = stick_to_shard_ ? 0 : counted(epoch).value;
    const uint64_t shard = (rank.value + walked) % world();
    const uint64_t begin = n_ * shard / world();
    return RankSlice{.count = n_ * (shard + 1) / world() - begin, .start = begin};
  }

 private:
  // As the pipeline counts: without a checkpoint one that is started again begins at 0.
  Epoch counted(Epoch epoch) const { return Epoch(epochs_since(counts_from_, epoch)); }

  Result<IndexOrder> make_order(Epoch of_job) override {
    const Epoch epoch = counted(of_job);
    if (cumulative_) {
      auto indices = stream_.order(epoch);
      if (!indices) return indices.error();
      return IndexOrder(*indices);
    }
    if (each_epoch_afresh_) return IndexOrder(shuffled(ascending(n_), resets(epoch), family_));
    if (random_shuffle_) return IndexOrder(shuffled(ascending(n_), 0, family_));
    return IndexOrder::identity(n_);
  }

  const uint64_t n_;
  const uint32_t counts_from_;
  const bool stick_to_shard_;
  const bool random_shuffle_;
  const bool each_epoch_afresh_;
  const bool cumulative_;
  const LibstdcxxShuffle family_;
  DaliStream stream_;
};

}  // namespace

SamplerResult make_dali(const SamplerSpec& spec) {
  if (spec.args.random_shuffle && spec.args.shuffle_after_epoch) {
    return bad_key("shuffle_after_epoch", "DALI refuses it together with random_shuffle");
  }
  return SamplerResult(std::make_unique<Dali>(spec));
}

}  // namespace clairfs
