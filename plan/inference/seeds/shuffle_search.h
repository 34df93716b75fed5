// ShuffleSearch: follows a reader of DataLoader(shuffle=True), without generator=, from epoch to epoch.
//
// Of the first epoch the seed is searched (seed_search.h): first among what the default generator gives after
// torch.manual_seed() of a value that people like, for the likeliest of them after as many draws as large
// models make, which takes some ten core-seconds; then among all. In the latter case the streams that it may
// come from are searched when the next epoch is asked for (default_generator.h): the first one has its plan
// by then. The streams in which it occurs foretell the second epoch's seed: some hundred orders, compared in
// milliseconds. The one that the reader follows proves its stream, and with it all later epochs. Where it
// follows none of them, since others draw much, or not as much in each epoch, all outputs that come next are
// tried: some ten milliseconds. Where there is no stream, since nothing was seeded, each epoch's seed is
// searched by itself.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "plan/inference/seeds/default_generator.h"
#include "plan/inference/seeds/seed_search.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {

/// For one thread at a time.
class ShuffleSearch {
 public:
  struct Options {
    uint32_t threads = 1;
    double core_seconds = 600;            ///< for the seeds of one epoch
    bool all_seeds = true;                ///< else only those that a value that people like gives
    uint64_t plausible_seeds = 0;         ///< of samplers with a seed of their own: OrderSearch tries them
    uint64_t stream_outputs = 1 << 20;    ///< of each such value
    size_t deep_streams = 6;              ///< the likeliest, beside those that the environment suggests
    uint64_t deep_outputs = 1 << 27;      ///< of each of those: ResNet-18 draws 10^7, ViT-B 9 * 10^7
    bool when_idle = true;                ///< as in SeedSearchOptions
    std::function<bool()> stop = {};      ///< asked every few milliseconds by any thread; empty: never
    GeneratorSearchOptions streams = {};  ///< its `stop` is not used
  };
  /// The first opens of an epoch.
  struct Seen {
    uint64_t n = 0;                         ///< samples of the dataset
    std::vector<uint32_t> first_seen = {};  ///< each once, in the order of time
    uint64_t reach = 0;                 ///< as in SeedEvidence, at least, where the loader is known; else 0
    double other_orders = 0;            ///< that were compared with the same opens
    std::vector<uint64_t> likely = {};  ///< values of torch.manual_seed() that the environment suggests
  };
  /// The order of an epoch and what comes after it, without the dataset.
  struct Found {
    PlanSpec order;           ///< of all epochs from first_epoch on, or with epochs=1 of this one
    double log_chance = 0;    ///< natural logarithm of the chance that any order fits as well by accident
    uint32_t seed = 0;        ///< of this epoch
    std::string description;  ///< "torch.manual_seed(0) after 3736 draws", "a shuffle with seed 7, of this
                              ///< epoch only"
  };

  explicit ShuffleSearch(Options options) : options_(std::move(options)) {}

  /// Nothing: no seed is certain, or time was up. An epoch may be asked for again: it has the same seed,
  /// which is not searched for.
  std::optional<Found> find(const Seen& seen);
  /// The same without a search: tries only what the epochs that were found have foretold. Takes fewer opens.
  std::optional<Found> go_on(const Seen& seen);
  /// Whether an epoch was found.
  bool has_begun() const { return epochs_ > 0; }
  /// CPU time of all searches of seeds, in seconds.
  double core_seconds() const { return core_seconds_; }
  /// Seeds that were tried by them, and those that were foretold.
  uint64_t tested() const { return tested_; }

 private:
  std::optional<FoundSeed> again(const SeedEvidence& evidence, double other_orders);
  std::optional<FoundSeed> foretold(const SeedEvidence& evidence, double other_orders);
  std::optional<FoundSeed> further_on(const SeedEvidence& evidence, double other_orders);
  std::optional<FoundSeed> searched(const SeedEvidence& evidence, const SeedSearchOptions& search);
  SeedSearchOptions search_options(const Seen& seen) const;
  bool find_streams(const Seen& seen);
  void note_seed(const FoundSeed& found, const SeedSearchOptions& search);
  Found told(const FoundSeed& found) const;

  const Options options_;
  uint32_t epochs_ = 0;                   // found, one after the other
  uint32_t last_seed_ = 0;                // of the last of them
  std::vector<GeneratorMatch> suspects_;  // in which all their seeds occur
  uint32_t unseeded_ = 0;                 // epochs in a row that are in no stream as far as is known
  bool streams_due_ = false;              // of the only one of them it is not known in which its seed occurs
  double core_seconds_ = 0;
  uint64_t tested_ = 0;
};

}  // namespace clairfs
