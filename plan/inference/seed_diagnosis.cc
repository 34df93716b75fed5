#include "plan/inference/seed_diagnosis.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cache/base/text.h"
#include "plan/inference/default_generator.h"
#include "plan/inference/seed_search.h"
#include "plan/inference/seeds/usual_seeds.h"

namespace clairfs {
namespace {

// Of a core: a second for seeds, and one for the plan's own value. The usual values are worth more: the 0.4 s
// below are twice as much where two threads share a core, and more on older ones. The planner waits for it.
constexpr double kCoreSeconds = 1;
constexpr double kCoreSecondsOfUsual = 4;

constexpr uint64_t kSeeds = 1'000'000;

// What small models draw before the first epoch: with 90 values it is 0.4 s with AVX-512. Of the plan's own
// value, which is the likeliest, what large ones draw, as far as the time goes.
constexpr uint64_t kOutputs = 1 << 18;
constexpr uint64_t kOutputsOfPlan = 1 << 26;

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
    found.known = distributed(found) || default_generator(found);
    return found;
  }

 private:
  std::optional<FoundSeed> search(const SeedEvidence& evidence, SeedSearchOptions options,
                                  double core_seconds = kCoreSeconds) {
    SeedEvidence wide = evidence;
    wide.reach = widest_reach(evidence, options, (spec_.prefetch_factor * spec_.workers + 1) * spec_.batch);
    if (wide.reach == 0) return std::nullopt;
    options.core_seconds = core_seconds;
    options.when_idle = false;  // the planner waits for it
    options.stop = stop_;
    const Result<SeedSearchResult> result = search_seeds(wide, options);
    return result ? result->found : std::nullopt;
  }

  bool distributed(Diagnosis& told) {
    const std::optional<uint64_t> planned = parse_whole<uint64_t>(spec_.seed);
    if (spec_.sampler != "torch.distributed" || !planned) return false;
    SeedEvidence ours = evidence_;
    ours.world = static_cast<uint32_t>(spec_.world);
    ours.ranks = static_cast<uint32_t>(spec_.ranks_per_node);
    ours.first_rank = node_.value * ours.ranks;
    const std::optional<FoundSeed> found = search(ours, {.end = kSeeds});
    if (!found) return false;
    const uint32_t epoch = spec_.set_epoch == "always" ? at_.epoch.value : 0;
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

  const PlanSpec& spec_;
  const PlanPosition at_;
  const NodeId node_;
  const std::function<bool()>& stop_;
  SeedEvidence evidence_;
};

}  // namespace

Diagnosis diagnose_seed(std::span<const Sighting> evidence, const PlanSpec& spec, uint64_t n, PlanPosition at,
                        NodeId node, const std::function<bool()>& stop) {
  return SeedDiagnosis(evidence, spec, n, at, node, stop).run();
}

}  // namespace clairfs
