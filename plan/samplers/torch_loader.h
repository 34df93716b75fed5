// torch samplers under a DataLoader: which generator is drawn from, when, and how much of it an epoch uses.
// Source: torch/utils/data/dataloader.py, sampler.py (1.6 to 2.14).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "plan/random/torch_random.h"
#include "plan/samplers/sampler.h"

namespace clairfs {

/// The draws of a RandomSampler in one epoch. Immutable, thread-safe; the generator is the caller's.
class RandomSamplerDraws {
 public:
  struct Options {
    uint64_t n = 0;      ///< > 0
    uint64_t count = 0;  ///< num_samples, > 0
    bool replacement = false;
    bool default_generator = false;  ///< no generator= was given
    TorchVersion torch = kNewestTorch;
  };
  explicit RandomSamplerDraws(Options options) : options_(options) {}

  /// An epoch's order, up to its last element.
  std::vector<uint32_t> order(Mt19937& generator) const;
  /// Draws as the sampler does when the consumer asks for an element after the last one, as DataLoader does.
  void finish(Mt19937& generator) const;
  /// As order() and finish().
  void skip(Mt19937& generator) const;

 private:
  bool private_generator() const;
  bool trailing_permutation() const;
  std::vector<uint32_t> take(Mt19937& generator) const;
  uint64_t draws_of_order() const;

  const Options options_;
};

/// How a torch sampler uses the generator that the plan describes.
struct TorchEpoch {
  uint64_t size = 0;                                     ///< samples per epoch
  std::function<std::vector<uint32_t>(Mt19937&)> order;  ///< makes an epoch
  std::function<void(Mt19937&)> skip;                    ///< draws as much without making it
};

/// A sampler that draws its epochs from the generator of `spec` (seed= or state=, generator=), with the
/// DataLoader's base_seed in its place. Errors: EINVAL.
Result<std::unique_ptr<Sampler>> make_torch_stream(const SamplerSpec& spec, TorchGeneratorUse use,
                                                   TorchEpoch epoch);

/// The generator that seed= or state= describes. Errors: EINVAL, also when neither or both are given.
Result<Mt19937> torch_starting_generator(const SamplerSpec& spec);

/// generator=, or else the default generator with state= and `usual` with seed=.
TorchGeneratorUse torch_generator_use(const SamplerSpec& spec, TorchGeneratorUse usual);

}  // namespace clairfs
