// torchdata's StatefulDataLoader(shuffle=True) with its own RandomSampler.
// Source: meta-pytorch/data, torchdata/stateful_dataloader/{sampler,stateful_dataloader}.py, 0.8 to 0.11.
#include <algorithm>
#include <span>

#include "plan/samplers/families.h"
#include "plan/samplers/support.h"
#include "plan/samplers/torch_loader.h"

namespace clairfs {
namespace {

constexpr LibraryVersion kFirstStateful{0, 8};
constexpr LibraryVersion kOwnIterator{0, 11};  // before, torch's RandomSampler did the drawing
constexpr uint64_t kChunk = 32;                // samples that replacement draws at a time

// Epochs of a loader from the first one that it delivers; each is what it draws, in the order of the draws.
class TorchdataEpochs {
 public:
  explicit TorchdataEpochs(const SamplerSpec& spec)
      : n_(spec.n),
        count_(spec.num_samples.value_or(spec.n)),
        replacement_(spec.replacement.value_or(false)),
        persistent_(spec.args.persistent_workers),
        workers_(spec.workers > 0),
        resumed_(!spec.args.state.empty()),
        shares_generator_(spec.generator.value_or(TorchGeneratorUse::loader) == TorchGeneratorUse::loader),
        own_iterator_(spec.torchdata >= kOwnIterator),
        torch_(spec.torch),
        torch_draws_({.n = n_, .count = count_, .replacement = replacement_, .torch = torch_}) {}

  // `epoch` counts from the first one that is delivered.
  std::vector<uint32_t> order(Mt19937& generator, Epoch epoch) const {
    const bool restored = resumed_ && epoch.value == 0;  // its state was taken right before its order
    const bool starts_workers = !restored && !(persistent_ && epoch.value > 0);
    if (!own_iterator_) {
      if (starts_workers) draw_base_seed(generator);
      std::vector<uint32_t> order = torch_draws_.order(generator);
      torch_draws_.finish(generator);
      return order;
    }
    if (starts_workers) {
      // iter() draws at once; with workers, a reset makes another iterator and that order is lost.
      if (!workers_) {
        std::vector<uint32_t> order = first_chunk(generator);
        draw_base_seed(generator);
        complete(generator, order);
        return order;
      }
      first_chunk(generator);
      draw_base_seed(generator);
    }
    std::vector<uint32_t> order = first_chunk(generator);
    complete(generator, order);
    return order;
  }

 private:
  void draw_base_seed(Mt19937& generator) const {
    if (shares_generator_) generator.discard(kDrawsOfRandomInt64);
  }

  std::vector<uint32_t> first_chunk(Mt19937& generator) const {
    std::vector<uint32_t> order;
    append_chunk(generator, order);
    return order;
  }

  void complete(Mt19937& generator, std::vector<uint32_t>& order) const {
    while (order.size() < count_) append_chunk(generator, order);
    order.resize(count_);
  }

  void append_chunk(Mt19937& generator, std::vector<uint32_t>& order) const {
    const size_t before = order.size();
    order.resize(before + (replacement_ ? kChunk : n_));
    const auto chunk = std::span(order).subspan(before);
    if (!replacement_) {
      torch_randperm(generator, chunk, torch_);
      return;
    }
    const bool wide = torch_randint_is_wide(n_, torch_);
    for (uint32_t& index : chunk) index = static_cast<uint32_t>(torch_randint(generator, n_, wide));
  }

  const uint64_t n_;
  const uint64_t count_;
  const bool replacement_;
  const bool persistent_;
  const bool workers_;
  const bool resumed_;
  const bool shares_generator_;  // the loader draws its base_seed from the sampler's generator
  const bool own_iterator_;
  const TorchVersion torch_;
  const RandomSamplerDraws torch_draws_;
};

class TorchdataRandom : public ReplicatedSampler {
 public:
  TorchdataRandom(const SamplerSpec& spec, Mt19937 generator)
      : ReplicatedSampler(spec.world, loader_slice(spec, spec.num_samples.value_or(spec.n))),
        first_epoch_(spec.args.state.empty() ? 0 : spec.first_epoch),
        stream_(EpochStream<Mt19937>::independent(
            spec.num_samples.value_or(spec.n), generator,
            [epochs = TorchdataEpochs(spec)](Mt19937& source, Epoch epoch, const auto&) {
              return epochs.order(source, epoch);
            })) {}

 private:
  Result<IndexOrder> make_order(Epoch epoch) override {
    if (epoch.value < first_epoch_) {
      return Error{ERANGE, "epoch: " + std::to_string(epoch.value) + " is before the one that state= is of"};
    }
    auto indices = stream_.order(Epoch(epoch.value - first_epoch_));
    if (!indices) return indices.error();
    return IndexOrder(*indices);
  }

  const uint32_t first_epoch_;  // where the stream begins
  EpochStream<Mt19937> stream_;
};

// The generator of a sampler that was given none.
Result<Mt19937> own_generator(const SamplerSpec& spec) {
  if (!spec.args.state.empty()) return torch_starting_generator(spec);
  if (spec.torchdata < kOwnIterator) return Mt19937(1);  // "something repeatable"
  Result<Mt19937> standard = torch_starting_generator(spec);
  if (!standard) return standard;
  return Mt19937(static_cast<uint32_t>(torch_random_int64(*standard)));
}

}  // namespace

SamplerResult make_torchdata_random(const SamplerSpec& spec) {
  if (spec.n == 0) return bad_key("n", "RandomSampler refuses an empty dataset");
  if (spec.num_samples == uint64_t{0}) return bad_key("num_samples", "RandomSampler needs a positive number");
  if (const Status size = check_size("num_samples", spec.num_samples.value_or(0)); !size) return size.error();
  if (spec.torchdata < kFirstStateful) return bad_key("torchdata", "StatefulDataLoader is there since 0.8");
  const bool given =
      spec.generator.value_or(TorchGeneratorUse::loader) != TorchGeneratorUse::default_generator;
  const Result<Mt19937> generator = given ? torch_starting_generator(spec) : own_generator(spec);
  if (!generator) return generator.error();
  return SamplerResult(std::make_unique<TorchdataRandom>(spec, *generator));
}

}  // namespace clairfs
