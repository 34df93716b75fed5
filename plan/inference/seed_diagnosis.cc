#include "plan/inference/seed_diagnosis.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cache/base/text.h"
#include "plan/inference/chance/fit.h"
#include "plan/inference/seeds/default_generator.h"
#include "plan/inference/seeds/random_parts.h"
#include "plan/inference/seeds/seed_search.h"
#include "plan/inference/seeds/usual_seeds.h"

namespace clairfs {
namespace {

// Of a core: a second for seeds, and one for the plan's own value. The usual values are worth more: the 0.4 s
// below are twice as much where two threads share a core, and more on older ones. The planner waits for it.
constexpr double kCoreSeconds = 1;
constexpr double kCoreSecondsOfUsual = 4;

constexpr uint64_t kSeeds = 1'000'000;

// What small models draw before the first epoch: with 90 values it is 0.4 s a pass with AVX-512. Of the
// plan's own value, which is the likeliest, what large ones draw, as far as the time goes.
constexpr uint64_t kOutputs = 1 << 18;
constexpr uint64_t kOutputsOfPlan = 1 << 26;

// Seeds that random_split() may have had: the plan's own value and the likeliest of the usual ones.
// Each costs an order of the dataset, which is made up to this size.
constexpr size_t kSplitSeeds = 6;
constexpr uint64_t kLargestSplit = 1 << 22;
// The seeds of the order in a part; and the likeliest splits, of whose generator an epoch's seed may be an
// output.
constexpr uint64_t kSeedsInPart = 1 << 12;
constexpr size_t kStreamsInPart = 2;
// More orders than are compared for one diagnosis.
constexpr double kOrders = 1e9;
// A part is told without its order if that is no accident: e^16 is ten million. Opens that lie closer
// together are those of a reader of the shuffle itself, which DistributedSampler draws like a split: 16
// workers with batches of 256.
constexpr double kNoAccident = 16;
constexpr uint64_t kSmallestPart = 1 << 13;

class SeedDiagnosis {
 public:
  SeedDiagnosis(std::span<const Sighting> evidence, const PlanSpec& spec, uint64_t n, PlanPosition at,
                NodeId node, const std::function<bool()>& stop)
      : spec_(spec), at_(at), node_(node), stop_(stop) {
    evidence_.n = n;
    for (const Sighting& sighting : evidence) {
      auto& seen = evidence_.first_seen;
      if (std::find(seen.begin(), seen.end(), sighting.sample) == seen.end()) seen.push_back(sighting.sample);
    }
  }

  Diagnosis run() {
    Diagnosis found;
    if (!spec_.shuffle || !spec_.dataset_shuffle.empty()) return found;
    found.known = distributed(found) || default_generator(found) || subset(found);
    return found;
  }

 private:
  std::optional<FoundSeed> search(const SeedEvidence& evidence, SeedSearchOptions options,
                                  double core_seconds = kCoreSeconds) {
    SeedEvidence wide = evidence;
    wide.batch = spec_.batch;
    wide.workers = spec_.workers;
    wide.reach = widest_reach(evidence, options, (spec_.prefetch_factor * spec_.workers + 1) * spec_.batch);
    if (wide.reach == 0) return std::nullopt;
    options.core_seconds = core_seconds;
    options.when_idle = false;  // the planner waits for it
    options.stop = stop_;
    const Result<SeedSearchResult> result = search_seeds(wide, options);
    if (!result) return std::nullopt;
    used_ += result->core_seconds;
    return result->found;
  }

  // As DistributedSampler deals the samples.
  SeedEvidence dealt() const {
    SeedEvidence ours = evidence_;
    if (spec_.sampler != "torch.distributed") return ours;
    ours.world = static_cast<uint32_t>(spec_.world);
    ours.ranks = static_cast<uint32_t>(spec_.ranks_per_node);
    ours.first_rank = node_.value * ours.ranks;
    return ours;
  }
  // DistributedSampler adds it to its seed.
  uint32_t added_epoch() const { return spec_.set_epoch == "always" ? at_.epoch.value : 0; }

  bool distributed(Diagnosis& told) {
    const std::optional<uint64_t> planned = parse_whole<uint64_t>(spec_.seed);
    if (spec_.sampler != "torch.distributed" || !planned) return false;
    const std::optional<FoundSeed> found = search(dealt(), {.end = kSeeds});
    if (!found) return false;
    const uint32_t epoch = added_epoch();
    if (found->seed < epoch || found->seed - epoch == *planned) return false;
    told.hint = fmt::format("matches seed={} instead of {}", found->seed - epoch, *planned);
    told.order = spec_;
    told.order->seed = std::to_string(found->seed - epoch);
    told.order->first_epoch = at_.epoch.value;
    return true;
  }

  // Each training rank reads the whole order.
  bool default_generator(Diagnosis& told) {
    const std::optional<uint64_t> planned = parse_whole<uint64_t>(spec_.seed);
    SeedSearchOptions usual{.end = 0, .stream_outputs = kOutputs};
    usual.streams.assign(usual_seeds().begin(), usual_seeds().end());
    std::optional<FoundSeed> found;
    if (planned) {
      std::erase(usual.streams, *planned);
      usual.streams.insert(usual.streams.begin(), *planned);
      SeedSearchOptions own{.end = 0, .streams = {*planned}, .stream_outputs = kOutputsOfPlan};
      own.other_orders = outputs_tried(usual);
      usual.other_orders = outputs_tried(own);
      found = search(evidence_, own);
    }
    if (!found) found = search(evidence_, usual, kCoreSecondsOfUsual);
    if (!found || !found->origin) return false;
    const GeneratorMatch match{.value = found->origin->stream, .output = found->origin->output};
    const uint64_t draws = match.output < 3 ? 0 : match.output - 3;
    told.hint = fmt::format("matches sampler=torch.random generator=default seed={} draws={}, which is {}",
                            match.value, draws, describe(match));
    PlanSpec order;
    order.root = spec_.root;
    order.format = spec_.format;
    order.sampler = "torch.random";
    order.generator = "default";
    order.seed = std::to_string(match.value);
    order.draws = draws;  // before the epoch that was seen
    told.order = std::move(order);
    return true;
  }

  // A split of the dataset, and where it has what was opened.
  struct Split {
    uint64_t seed = 0;
    std::vector<uint32_t> places = {};
  };

  // One of random_split()'s parts, by its own shuffle; else by where the opens lie.
  bool subset(Diagnosis& told) {
    const std::vector<uint32_t>& seen = evidence_.first_seen;
    if (seen.empty() || *std::max_element(seen.begin(), seen.end()) >= evidence_.n) return false;
    if (evidence_.n > kLargestSplit) return false;
    std::vector<Split> splits;
    for (const uint64_t seed : split_seeds()) {
      if (stop_ && stop_()) return false;
      splits.push_back({seed, places_in_split(seen, evidence_.n, seed)});
    }
    double limit = used_ + kCoreSeconds;
    for (const Split& split : splits) {
      if (any_part(split, {.end = kSeedsInPart + added_epoch()}, limit, told)) return true;
    }
    limit = used_ + kCoreSeconds;
    for (size_t i = 0; i < std::min(kStreamsInPart, splits.size()); ++i) {
      const SeedSearchOptions drawn{
          .end = 0, .streams = {splits[i].seed}, .stream_outputs = evidence_.n + kOutputs};
      if (any_part(splits[i], drawn, limit, told)) return true;
    }
    return lies_in_part(splits, told);
  }

  std::vector<uint64_t> split_seeds() const {
    std::vector<uint64_t> seeds;
    if (const auto planned = parse_whole<uint64_t>(spec_.seed)) seeds.push_back(*planned);
    for (const uint64_t seed : usual_seeds()) {
      if (seeds.size() >= kSplitSeeds) break;
      if (std::find(seeds.begin(), seeds.end(), seed) == seeds.end()) seeds.push_back(seed);
    }
    return seeds;
  }

  // Seconds of used_ end it at `limit`.
  bool any_part(const Split& split, SeedSearchOptions options, double limit, Diagnosis& told) {
    options.other_orders = kOrders;
    for (const RandomPart& part : usual_parts(evidence_.n)) {
      SeedEvidence inside = dealt();
      inside.n = part.end - part.first;
      inside.first_seen.clear();
      for (const uint32_t place : split.places) {
        if (place >= part.first && place < part.end)
          inside.first_seen.push_back(static_cast<uint32_t>(place - part.first));
      }
      if (static_cast<double>(inside.first_seen.size()) < kMostly * static_cast<double>(split.places.size()))
        continue;
      for (const uint32_t draws : {0U, 2U}) {
        if (draws != 0 && options.end == 0) continue;  // a fresh generator each epoch
        if (used_ >= limit || (stop_ && stop_())) return false;
        inside.draws = draws;
        const std::optional<FoundSeed> found = search(inside, options, limit - used_);
        if (!found) continue;
        told.hint = fmt::format(
            "matches a Subset: the {} {} of {} samples that random_split() draws with seed={}, "
            "shuffled by {}; clairfs.register(loader) plans it",
            part.first == 0 ? "first" : "last", inside.n, evidence_.n, split.seed, shuffle_of(*found));
        return true;
      }
    }
    return false;
  }

  std::string shuffle_of(const FoundSeed& found) const {
    if (found.origin) return describe({.value = found.origin->stream, .output = found.origin->output});
    const bool adds_up = spec_.sampler == "torch.distributed" && found.seed >= added_epoch();
    return fmt::format("seed={}", found.seed - (adds_up ? added_epoch() : 0));
  }

  // Nine of ten opens lie in so small a share of one end of a split. The share of an order that has nothing
  // to do with the reader is that by accident with the chance of as many hits in it.
  bool lies_in_part(const std::vector<Split>& splits, Diagnosis& told) const {
    const uint64_t seen = evidence_.first_seen.size();
    const uint64_t hits = (seen * 9 + 9) / 10;
    double least = -kNoAccident - std::log(2 * static_cast<double>(kSplitSeeds));
    bool known = false;
    for (const Split& split : splits) {
      std::vector<uint32_t> places = split.places;
      std::sort(places.begin(), places.end());
      const uint64_t in_first = uint64_t{places[hits - 1]} + 1;
      const uint64_t in_last = evidence_.n - places[seen - hits];
      const bool is_first = in_first <= in_last;
      const uint64_t in_part = is_first ? in_first : in_last;
      const uint64_t middle = places[seen / 2];
      const uint64_t half_in = is_first ? middle + 1 : evidence_.n - middle;
      const double share = static_cast<double>(in_part) / static_cast<double>(evidence_.n);
      const double chance = log_tail(seen, share, hits);
      if (chance >= least || in_part < kSmallestPart) continue;
      if (10 * half_in > 9 * in_part) continue;  // who reads on in the shuffle itself, from anywhere
      least = chance;
      known = true;
      // Of opens all over a part nine of ten lie in nine tenths of it.
      told.hint = fmt::format(
          "matches a Subset: about the {} {:.0f} % that random_split() draws with seed={}, "
          "in an order that is not known; clairfs.register(loader) plans it",
          is_first ? "first" : "last", 100 * std::min(share / 0.9, 1.0), split.seed);
    }
    return known;
  }

  const PlanSpec& spec_;
  const PlanPosition at_;
  const NodeId node_;
  const std::function<bool()>& stop_;
  SeedEvidence evidence_;
  double used_ = 0;  // CPU seconds of all searches
};

}  // namespace

Diagnosis diagnose_seed(std::span<const Sighting> evidence, const PlanSpec& spec, uint64_t n, PlanPosition at,
                        NodeId node, const std::function<bool()>& stop) {
  return SeedDiagnosis(evidence, spec, n, at, node, stop).run();
}

}  // namespace clairfs
