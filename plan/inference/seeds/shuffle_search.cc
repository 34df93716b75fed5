#include "plan/inference/seeds/shuffle_search.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include <fmt/format.h>

#include "plan/inference/seeds/usual_seeds.h"

namespace clairfs {
namespace {

// The opens that are compared.
SeedEvidence evidence_of(const ShuffleSearch::Seen& seen, const SeedSearchOptions& search, uint64_t least) {
  SeedEvidence evidence{.n = seen.n, .first_seen = seen.first_seen};
  if (evidence.first_seen.size() > kEnoughOpens) evidence.first_seen.resize(kEnoughOpens);
  evidence.reach = widest_reach(evidence, search, least);
  return evidence;
}

uint64_t least_reach(const ShuffleSearch::Seen& seen) {
  return std::min(kLeastReach, seen.n / 4);
}

void add_new(std::vector<uint64_t>& values, uint64_t value) {
  if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
}

// Outputs that `match` foretells as the next epoch's seed, if it matches `epochs` of them.
std::vector<uint32_t> next_seeds(const GeneratorMatch& match, uint32_t epochs) {
  if (match.stride != 0) return {later_seeds(match, match.stride, epochs).back()};
  const std::vector<uint32_t> strides = likely_strides();
  const auto outputs = later_seeds(match, 1, *std::max_element(strides.begin(), strides.end()));
  std::vector<uint32_t> seeds;
  for (const uint32_t stride : strides) seeds.push_back(outputs[stride - 1]);
  return seeds;
}

}  // namespace

SeedSearchOptions ShuffleSearch::search_options(const Seen& seen) const {
  SeedSearchOptions search{.end = options_.all_seeds ? kAllSeeds : 0,
                           .stream_outputs = options_.stream_outputs};
  for (const uint64_t value : seen.likely) add_new(search.streams, value);
  search.deep_streams = search.streams.size() + options_.deep_streams;
  search.deep_outputs = options_.deep_outputs;
  for (const uint64_t value : usual_seeds()) add_new(search.streams, value);
  search.threads = options_.threads;
  search.core_seconds = options_.core_seconds;
  search.when_idle = options_.when_idle;
  search.other_orders = seen.other_orders;
  search.stop = options_.stop;
  return search;
}

std::optional<ShuffleSearch::Found> ShuffleSearch::find(const Seen& seen) {
  if (auto found = go_on(seen)) return found;
  const SeedSearchOptions search = search_options(seen);
  const SeedEvidence evidence = evidence_of(seen, search, least_reach(seen));
  if (evidence.reach == 0) return std::nullopt;
  std::optional<FoundSeed> found;
  if (find_streams(seen)) found = foretold(evidence, orders_tried(search));
  if (!found) found = searched(evidence, search);
  if (!found) return std::nullopt;
  note_seed(*found, search);
  return told(*found);
}

// Fewer orders than a search compares, so opens may lie further from the beginning, or be fewer.
std::optional<ShuffleSearch::Found> ShuffleSearch::go_on(const Seen& seen) {
  if (epochs_ == 0) return std::nullopt;
  const double orders = seen.other_orders + static_cast<double>(suspects_.size() * uint64_t{kMostStride});
  const SeedSearchOptions foretelling{.end = 0, .other_orders = orders};
  const SeedEvidence evidence =
      evidence_of(seen, foretelling, seen.reach == 0 ? least_reach(seen) : std::min(seen.reach, seen.n));
  if (evidence.reach == 0) return std::nullopt;
  if (const auto same = again(evidence, orders)) return told(*same);
  std::optional<FoundSeed> found = foretold(evidence, orders);
  if (!found) found = further_on(evidence, orders);
  if (!found) return std::nullopt;
  note_seed(*found, search_options(seen));
  return told(*found);
}

ShuffleSearch::Found ShuffleSearch::told(const FoundSeed& found) const {
  Found result{.order = plan_of_epoch_seed(found.seed, {}),
               .log_chance = found.log_chance,
               .seed = found.seed,
               .description = fmt::format("a shuffle with seed {}, of this epoch only", found.seed)};
  if (suspects_.size() != 1 || !suspects_.front().certain()) return result;
  Result<PlanSpec> all = plan_of_generator(suspects_.front(), {});
  if (!all) return result;
  result.order = std::move(*all);
  result.order.first_epoch = epochs_ - 1;
  result.description = describe(suspects_.front());
  return result;
}

std::optional<FoundSeed> ShuffleSearch::again(const SeedEvidence& evidence, double other_orders) {
  if (epochs_ == 0) return std::nullopt;
  ++tested_;
  FoundSeed same = explain_by_seed(evidence, last_seed_);
  same.log_chance += std::log(other_orders + 1);
  return same.log_chance < std::log(kMostWrongLocks) ? std::optional(same) : std::nullopt;
}

std::optional<FoundSeed> ShuffleSearch::foretold(const SeedEvidence& evidence, double other_orders) {
  double orders = other_orders;
  for (const GeneratorMatch& suspect : suspects_) {
    for (const uint32_t seed : next_seeds(suspect, epochs_)) {
      FoundSeed one = explain_by_seed(evidence, seed);
      ++tested_;
      one.log_chance += std::log(++orders);
      if (one.log_chance < std::log(kMostWrongLocks)) return one;
    }
  }
  return std::nullopt;
}

// Each of the outputs that come after the last epoch's seed, of all suspects. `other_orders` has them.
std::optional<FoundSeed> ShuffleSearch::further_on(const SeedEvidence& evidence, double other_orders) {
  for (const GeneratorMatch& suspect : suspects_) {
    const uint64_t last = suspect.output + uint64_t{suspect.stride} * (epochs_ - 1);
    const SeedSearchOptions search{.end = 0,
                                   .streams = {suspect.value},
                                   .stream_outputs = kMostStride,
                                   .first_output = last + 1,
                                   .core_seconds = options_.core_seconds,
                                   .when_idle = options_.when_idle,
                                   .other_orders = other_orders,
                                   .stop = options_.stop};
    if (auto found = searched(evidence, search)) return found;
  }
  return std::nullopt;
}

std::optional<FoundSeed> ShuffleSearch::searched(const SeedEvidence& evidence,
                                                 const SeedSearchOptions& search) {
  const Result<SeedSearchResult> result = search_seeds(evidence, search);
  if (!result) return std::nullopt;
  core_seconds_ += result->core_seconds;
  tested_ += result->tested;
  return result->found;
}

// Of the epoch before, whose seed was searched among all; a second time if it was given up.
bool ShuffleSearch::find_streams(const Seen& seen) {
  if (!streams_due_) return false;
  GeneratorSearchOptions options = options_.streams;
  options.stop = options_.stop;
  Result<std::vector<GeneratorMatch>> found = find_default_generator({{last_seed_}, seen.likely}, options);
  if (!found || (options.stop && options.stop())) return false;
  streams_due_ = false;
  suspects_ = std::move(*found);
  return !suspects_.empty();
}

// What the next epoch leaves of the streams needs no search. If it leaves nothing it is the first one of
// another job, of a script that seeds anew, or of one that draws otherwise, whose stream may be the same. One
// that was not seeded has no stream in any epoch: it is searched for less and less often.
void ShuffleSearch::note_seed(const FoundSeed& found, const SeedSearchOptions& search) {
  if (epochs_ > 0) suspects_ = narrow(suspects_, epochs_, found.seed);
  streams_due_ = false;
  if (suspects_.empty()) {
    epochs_ = 0;
    if (found.origin) {
      const auto& [stream, output] = *found.origin;
      suspects_.push_back({stream, output, 0, outputs_tried(search) / static_cast<double>(kAllSeeds)});
    } else {
      streams_due_ = std::has_single_bit(++unseeded_);
    }
  }
  if (!suspects_.empty()) unseeded_ = 0;
  ++epochs_;
  last_seed_ = found.seed;
}

}  // namespace clairfs
