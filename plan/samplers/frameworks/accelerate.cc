// Hugging Face accelerate, and transformers' Trainer on top of it: RandomSampler's order, dealt to the ranks
// by batches.
// Source: huggingface/accelerate, src/accelerate/data_loader.py (SeedableRandomSampler, BatchSamplerShard,
// DataLoaderDispatcher), 0.24 to 1.9.
#include <algorithm>
#include <cerrno>

#include "plan/samplers/families.h"
#include "plan/samplers/support.h"
#include "plan/samplers/torch_loader.h"

namespace clairfs {
namespace {

constexpr LibraryVersion kFirst{0, 24};         // before, sampling was not reproducible
constexpr LibraryVersion kSeedRunsAway{0, 25};  // until 0.27 an epoch's seed was added to the seed before
constexpr LibraryVersion kSeedStays{0, 28};

// What SeedableRandomSampler adds to the seed in an epoch.
uint64_t added_to_seed(Epoch epoch, LibraryVersion accelerate) {
  const uint64_t e = epoch.value;
  return accelerate >= kSeedRunsAway && accelerate < kSeedStays ? e * (e + 1) / 2 : e;
}

SamplerResult seedable_order(const SamplerSpec& spec) {
  const Result<BigInteger> seed = integer_seed(spec);
  if (!seed) return seed.error();
  const Result<Mt19937> usable = torch_generator(*seed);
  if (!usable) return bad_key("seed", usable.error().message);
  const auto make = [seed = *seed, n = spec.n, torch = spec.torch,
                     accelerate = spec.accelerate](Epoch epoch) -> Result<IndexOrder> {
    Result<std::vector<uint32_t>> order =
        seeded_randperm(seed.plus(added_to_seed(epoch, accelerate)), n, torch);
    if (!order) return order.error();
    return IndexOrder(std::move(*order));
  };
  return SamplerResult(std::make_unique<IndependentSampler>(1, span_slice(0, spec.n), make));
}

// use_seedable_sampler=False: prepare() gives the sampler a generator, seeded from the default one, if the
// loader has none; it runs on from epoch to epoch.
SamplerResult running_order(SamplerSpec spec) {
  const RandomSamplerDraws draws({.n = spec.n, .count = spec.n, .torch = spec.torch});
  const auto order = [draws](Mt19937& generator) {
    std::vector<uint32_t> indices = draws.order(generator);
    draws.finish(generator);
    return indices;
  };
  const TorchEpoch epoch{spec.n, order, [draws](Mt19937& generator) { draws.skip(generator); }};
  spec.drop_last = false;
  if (spec.generator == TorchGeneratorUse::loader) {
    return make_torch_stream(spec, TorchGeneratorUse::loader, epoch);
  }
  Result<Mt19937> at_prepare = torch_starting_generator(spec);
  if (!at_prepare) return at_prepare.error();
  spec.args.state.clear();
  spec.seed = std::to_string(torch_random_int64(*at_prepare));
  return make_torch_stream(spec, TorchGeneratorUse::sampler, epoch);
}

class Accelerate : public Sampler {
 public:
  Accelerate(const SamplerSpec& spec, std::unique_ptr<Sampler> all)
      : Sampler(spec.world),
        n_(spec.n),
        batch_(spec.batch),
        drop_last_(spec.drop_last),
        dispatch_(spec.args.dispatch_batches),
        round_(spec.args.split_batches ? batch_ : batch_ * world()),
        padded_(pads(spec) ? (n_ + round_ - 1) / round_ * round_ : n_),
        all_(std::move(all)) {}

  RankSlice slice(Epoch, TrainingRank rank) const override {
    const uint64_t whole = drop_last_ ? n_ / batch_ * batch_ : n_;
    if (world() == 1) return span_slice(0, whole);
    if (dispatch_) return span_slice(0, rank.value == 0 ? whole : 0);
    return batch_slice(padded_, round_, round_ / world(), rank.value, drop_last_);
  }

 private:
  static bool pads(const SamplerSpec& spec) {
    return spec.world > 1 && spec.args.even_batches && !spec.drop_last && !spec.args.dispatch_batches;
  }

  // Missing samples are those of the first round, from its beginning and as often as it takes.
  Result<IndexOrder> make_order(Epoch epoch) override {
    Result<IndexOrder> order = all_->order(epoch);
    if (!order || padded_ == n_) return order;
    std::vector<uint32_t> samples(padded_);
    const uint64_t first_round = std::min(n_, round_);
    for (uint64_t k = 0; k < padded_; ++k) samples[k] = (*order)[k < n_ ? k : (k - n_) % first_round];
    return IndexOrder(std::move(samples));
  }

  const uint64_t n_;
  const uint64_t batch_;  // of the DataLoader that prepare() was given
  const bool drop_last_;
  const bool dispatch_;
  const uint64_t round_;   // samples of all ranks in a step
  const uint64_t padded_;  // samples of an epoch, repeated ones included
  const std::unique_ptr<Sampler> all_;
};

}  // namespace

SamplerResult make_accelerate(const SamplerSpec& spec) {
  if (spec.n == 0) return bad_key("n", "RandomSampler refuses an empty dataset");
  if (spec.accelerate < kFirst) {
    return Error{ENOTSUP,
                 "accelerate: before 0.24 ranks drew from the default generator; record the order and use "
                 "sampler=list list=FILE"};
  }
  if (spec.args.split_batches && spec.batch % spec.world != 0) {
    return bad_key("split_batches", "accelerate then wants a batch_size that the ranks divide evenly");
  }
  if (spec.args.use_seedable_sampler && (!spec.args.state.empty() || spec.generator)) {
    return bad_key(spec.args.state.empty() ? "generator" : "state",
                   "with accelerate it needs use_seedable_sampler=false");
  }
  if (spec.generator && *spec.generator == TorchGeneratorUse::sampler) {
    return bad_key("generator", "want loader, or default as it is at accelerator.prepare()");
  }
  SamplerResult all = spec.args.use_seedable_sampler ? seedable_order(spec) : running_order(spec);
  if (!all) return all.error();
  return SamplerResult(std::make_unique<Accelerate>(spec, std::move(*all)));
}

}  // namespace clairfs
