#include "plan/tracking/diagnosis.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "cache/base/text.h"
#include "plan/sequence/sequence_positions.h"
#include "plan/spec/keys.h"
#include "plan/tracking/chain.h"
#include "plan/tracking/interleaving.h"

namespace clairfs {
namespace {

// Epochs tried beside the first ones and those around the current.
constexpr uint32_t kEpochs = 8;

// Sizes of jobs: each costs a sequence.
constexpr uint64_t kLargestWorld = 128;

// Steps of the job that what was seen must span to tell of its size.
constexpr uint32_t kSteps = 4;

// Positions that opens stray from an order of which nobody has told us the workers: those of 16 workers with
// batches of 256.
constexpr uint64_t kWidest = 1 << 13;

// A sampler that a script may have instead of the plan's, with the plan's seed.
struct OtherSampler {
  const char* sampler;
  const char* generator;
  const char* reseed;
  const char* in_the_script;
};
constexpr OtherSampler kOtherSamplers[] = {
    {"torch.distributed", "", "", "DistributedSampler"},
    {"torch.random", "default", "", "DataLoader(shuffle=True) after torch.manual_seed()"},
    {"torch.random", "loader", "", "DataLoader(shuffle=True, generator=...)"},
    {"torch.random", "sampler", "", "RandomSampler(generator=...)"},
    {"numpy.default_rng", "", "once", "numpy.random.default_rng()"},
    {"numpy.default_rng", "", "epoch", "numpy.random.default_rng(seed + epoch)"},
    {"numpy.legacy", "", "once", "numpy.random.seed()"},
    {"numpy.legacy", "", "epoch", "numpy.random.seed(seed + epoch)"},
    {"python.random", "", "once", "random.seed()"},
    {"python.random", "", "epoch", "random.seed(seed + epoch)"},
};

// Share of the sightings that must lie with one group of ranks for it to be this node's: strays aside.
constexpr double kOwnShare = 0.85;

// 0 ... n - 1 as a cursor comes to their decimal keys: in the order of text. REQUIRES: n is not 0.
std::vector<uint32_t> as_text_sorts(uint64_t n) {
  std::vector<uint32_t> numbers{0};
  numbers.reserve(n);
  for (uint64_t at = 1; numbers.size() < n;) {
    numbers.push_back(static_cast<uint32_t>(at));
    if (at * 10 < n) {
      at *= 10;
      continue;
    }
    if (at + 1 == n) at /= 10;
    for (++at; at % 10 == 0;) at /= 10;
  }
  return numbers;
}

class Search {
 public:
  Search(std::span<const Sighting> evidence, const PlanSpec& spec, PlanPosition at, NodeId node,
         uint64_t reorder_window, const SequenceMaker& make, const std::function<bool()>& stop)
      : evidence_(evidence),
        spec_(spec),
        at_(at),
        current_(at.epoch),
        first_epoch_(static_cast<uint32_t>(spec.first_epoch)),
        node_(node),
        reorder_window_(reorder_window),
        make_(make),
        stop_(stop) {
    // Any epoch, from its beginning.
    spec_.forget_place();
  }

  Diagnosis run() {
    found_.known = more_workers() || other_epoch() || by_number() || other_keys() || other_world(false) ||
                   other_sampler() || other_seed() || other_setting();
    if (found_.known) return found_;
    Diagnosis unknown;
    if (spec_.reads_streams())
      unknown.hint +=
          fmt::format(": another seed, or other than workers={} that read shards?", spec_.workers);
    else if (spec_.shuffle)
      unknown.hint +=
          ": another seed, a Subset, or a shuffle that follows what was drawn before? "
          "clairfs.register(loader) "
          "tells the plan";
    if (spec_.format == "lmdb")
      unknown.hint += fmt::format("; or the script numbers the records otherwise than keys={} says",
                                  shortened(spec_.lmdb_keys, 60));
    return unknown;
  }

 private:
  bool stopped() const { return stop_ && stop_(); }

  std::unique_ptr<SequencePositions> positions(const PlanSpec& spec, Epoch epoch, NodeId node) const {
    if (stopped()) return nullptr;
    Result<EpochSequence> made = make_(spec, epoch, node);
    if (!made || made->length() == 0) return nullptr;
    return std::make_unique<SequencePositions>(std::make_shared<const EpochSequence>(std::move(*made)));
  }

  std::optional<Chain> chain(const PositionsOf& of, uint64_t length, uint64_t stride = 1) const {
    std::optional<Chain> found = find_chain(evidence_, of, length, {reorder_window_ * stride, stride});
    if (found && found->length < kExplained * found->among) found.reset();
    return found;
  }

  // How far opens stray from that order, if it is the one that is read: as the plan says, or with `dealt`
  // further, where that explains more.
  std::optional<uint64_t> strays_from(const SequencePositions* order, bool dealt) const {
    if (order == nullptr) return std::nullopt;
    const auto of = [&](uint32_t sample, std::vector<uint32_t>& out) {
      const auto found = order->of(sample);
      out.insert(out.end(), found.begin(), found.end());
    };
    const uint64_t length = order->sequence().length();
    const std::optional<Chain> planned = chain(of, length);
    for (uint64_t reorder_window = 16; dealt && reorder_window <= kWidest && reorder_window < length / 4;
         reorder_window *= 2) {
      if (reorder_window <= reorder_window_) continue;
      const auto found = find_chain(evidence_, of, length, {reorder_window, 1});
      if (!found || found->length < kExplained * found->among) continue;
      // What one of the workers opened is a chain as well, of a part of the sightings.
      if (!planned || 4 * found->length >= 5 * planned->length) return reorder_window;
    }
    return planned ? std::optional(reorder_window_) : std::nullopt;
  }

  bool matches(const PlanSpec& spec, Epoch epoch, bool dealt = true) const {
    return strays_from(positions(spec, epoch, node_).get(), dealt).has_value();
  }

  bool other_epoch() {
    std::vector<uint32_t> epochs;
    const auto add = [&](int64_t epoch) {
      if (epoch < 0 || epoch > UINT32_MAX) return;
      const auto number = static_cast<uint32_t>(epoch);
      if (std::find(epochs.begin(), epochs.end(), number) == epochs.end()) epochs.push_back(number);
    };
    const int64_t now = current_.value;
    for (const int64_t epoch : {now, now - 1, now + 1, int64_t{0}, now + 2, now + 3, now - 2}) add(epoch);
    for (uint32_t epoch = 1; epoch < kEpochs; ++epoch) add(epoch);
    for (const uint32_t epoch : epochs) {
      if (!matches(spec_, Epoch(epoch), false)) continue;
      if (epoch == current_.value && other_world(true)) return true;
      found_.epoch = Epoch(epoch);
      found_.hint = epoch == current_.value       ? fmt::format("matches epoch {} at another position", epoch)
                    : epoch + 1 == current_.value ? hint_of_epoch_again(Epoch(epoch))
                                                  : fmt::format(
                                                        "matches epoch {} (now in epoch {}): is "
                                                        "set_epoch called?",
                                                        epoch, current_.value);
      return true;
    }
    return false;
  }

  // The plan's order, but a loader with more workers than the plan has, or any at all, deals it to them.
  bool more_workers() {
    for (const uint32_t epoch : {current_.value, current_.value + 1, first_epoch_}) {
      const auto order = positions(spec_, Epoch(epoch), node_);
      const std::optional<uint64_t> reorder_window = strays_from(order.get(), true);
      if (!reorder_window || *reorder_window <= reorder_window_) continue;
      found_.epoch = Epoch(epoch);
      // Batches are in flight that were not begun yet: of two workers five batches, where their opens are one
      // batch apart.
      found_.reorder_window = std::min(8 * *reorder_window, uint64_t{order->sequence().length()} / 4);
      found_.hint =
          "matches the plan, but dealt to several workers: give batch= and workers= as DataLoader has them";
      const std::optional<Interleaving> dealt = epoch == current_.value ? interleaving(*order) : std::nullopt;
      if (!dealt) return true;
      const uint64_t theirs = dealt_slack(dealt->batch, dealt->workers);
      if (theirs > 8 * *reorder_window) return true;  // what began there were strays
      found_.reorder_window = std::max(*found_.reorder_window, theirs);
      found_.hint = fmt::format("matches the plan, but dealt to several workers: give batch={} workers={}",
                                dealt->batch, dealt->workers);
      return true;
    }
    return false;
  }

  // As AccessSequence::reorder_window().
  uint64_t dealt_slack(uint64_t batch, uint64_t workers) const {
    return (spec_.prefetch_factor * workers + 1) * batch *
           (divides_among_ranks(spec_) ? 1 : spec_.ranks_per_node);
  }

  std::optional<Interleaving> interleaving(const SequencePositions& order) const {
    if (spec_.ranks_per_node > 1) return std::nullopt;        // ranks deal it among them, too
    if (evidence_.size() >= kSightings) return std::nullopt;  // the first ones are forgotten
    std::vector<uint32_t> positions;
    for (const Sighting& sighting : evidence_) {
      if (const auto of = order.of(sighting.sample); of.size() == 1) positions.push_back(of.front());
    }
    return find_interleaving(positions, at_.position);
  }

  // Another sampler with the plan's seed.
  bool other_sampler() {
    if (spec_.seed.empty() || !spec_.shuffle) return false;
    for (const OtherSampler& other : kOtherSamplers) {
      PlanSpec changed = spec_;
      changed.sampler = other.sampler;
      changed.generator = other.generator;
      changed.reseed = other.reseed;
      changed.method.clear();
      changed.set_epoch = "always";
      if (spec_.sampler == other.sampler && changed.generator.empty()) continue;  // see other_setting()
      if (!divides_among_ranks(changed)) changed.world = plan_nodes(spec_), changed.ranks_per_node = 1;
      std::string key = fmt::format("sampler={}", other.sampler);
      if (!changed.generator.empty()) key += fmt::format(" generator={}", changed.generator);
      if (changed.reseed == "epoch") key += " reseed=epoch";
      for (const Epoch epoch : {current_, Epoch(first_epoch_)}) {
        if (changed == spec_ || !validate_plan(changed) || !matches(changed, epoch)) continue;
        found_.hint = fmt::format("matches {}, which is {}", key, other.in_the_script);
        found_.order = begun_at(changed, epoch);
        return true;
      }
    }
    return false;
  }

  // Sample after sample, or every world-th of them: positions are the numbers themselves.
  bool by_number() {
    if (spec_.sampler == "torch.sequential" || !spec_.shuffle || stopped()) return false;
    const auto order = positions(spec_, current_, node_);
    if (!order) return false;
    const auto& samples = order->sequence().samples();
    const uint64_t n = uint64_t{*std::max_element(samples.begin(), samples.end())} + 1;
    const auto of = [](uint32_t sample, std::vector<uint32_t>& out) { out.push_back(sample); };
    for (const uint64_t stride : {uint64_t{1}, spec_.world / spec_.ranks_per_node}) {
      if (!chain(of, n, stride)) continue;
      found_.hint = "matches sequential order: is the sampler shuffling?";
      return true;
    }
    return false;
  }

  // The plan's order over the records of an LMDB, but numbered as the other of the two usual ways has them.
  // It is the same one where numbers are written with zeros in front.
  bool other_keys() {
    const bool counted = spec_.lmdb_keys == "decimal";
    if (spec_.format != "lmdb" || (!counted && spec_.lmdb_keys != "cursor") || spec_.n == 0) return false;
    std::vector<uint32_t> theirs;  // by the plan's number
    for (const Epoch epoch : {current_, Epoch(first_epoch_)}) {
      const auto order = positions(spec_, epoch, node_);
      if (!order) continue;
      if (theirs.empty()) theirs = counted ? inverse(as_text_sorts(spec_.n)) : as_text_sorts(spec_.n);
      const auto of = [&](uint32_t sample, std::vector<uint32_t>& out) {
        if (sample >= theirs.size()) return;
        const auto found = order->of(theirs[sample]);
        out.insert(out.end(), found.begin(), found.end());
      };
      if (!chain(of, order->sequence().length())) continue;
      found_.hint =
          fmt::format("matches keys={} instead of {}", counted ? "cursor" : "decimal", spec_.lmdb_keys);
      return true;
    }
    return false;
  }

  static std::vector<uint32_t> inverse(const std::vector<uint32_t>& permutation) {
    std::vector<uint32_t> places(permutation.size());
    for (uint32_t at = 0; at < permutation.size(); ++at) places[permutation[at]] = at;
    return places;
  }

  // The order of all ranks of such a job, as one node would see it; then which of them are here.
  // `fewer`: only jobs of which fewer ranks are here than planned.
  bool other_world(bool fewer) {
    // Elsewhere every rank reads the whole order, which so tells nothing of how many there are; and that of a
    // large job's ranks together would take its memory a hundred times.
    if (!divides_among_ranks(spec_)) return false;
    std::set<uint64_t> worlds{spec_.world * 2, spec_.world / 2, spec_.world};
    for (uint64_t world = 1; world <= kLargestWorld; world *= 2) worlds.insert(world);
    worlds.erase(0);
    std::optional<Ranks> best;
    for (const uint64_t world : worlds) {  // of two that explain as much, the smaller
      const std::optional<Ranks> ranks = ranks_here(world);
      if (ranks && (!best || ranks->count * best->world < best->count * ranks->world)) best = ranks;
    }
    if (!best) return false;
    if (fewer && best->count * spec_.world >= spec_.ranks_per_node * best->world) return false;
    const auto some = [](uint64_t first, uint64_t count) {
      return count == 1 ? std::to_string(first) : fmt::format("{} to {}", first, first + count - 1);
    };
    const std::string which =
        fmt::format("rank{} {}", best->count == 1 ? "" : "s", some(best->first, best->count));
    found_.hint =
        best->world == spec_.world
            ? fmt::format("matches {} instead of {}: is this node another one of the job?", which,
                          some(node_.value * spec_.ranks_per_node, spec_.ranks_per_node))
            : fmt::format("matches world={} instead of {} ({} here)", best->world, spec_.world, which);
    found_.order = begun_at(spec_, current_);
    found_.order->world = best->world;
    found_.order->ranks_per_node = best->count;
    return true;
  }

  struct Ranks {
    uint64_t world = 0;
    uint64_t first = 0;
    uint64_t count = 0;
  };

  // The smallest aligned group of ranks of such a job that explains what was seen.
  std::optional<Ranks> ranks_here(uint64_t world) const {
    PlanSpec all = spec_;
    all.world = all.ranks_per_node = world;
    const auto order = positions(all, current_, NodeId(0));
    if (!order) return std::nullopt;
    const uint64_t length = order->sequence().length();
    for (uint64_t count = 1; count <= world; ++count) {
      if (world % count != 0) continue;
      std::vector<size_t> groups(world / count);
      for (const Sighting& sighting : evidence_) {
        for (const uint32_t position : order->of(sighting.sample)) ++groups[position % world / count];
      }
      const auto largest = std::max_element(groups.begin(), groups.end());
      const auto group = static_cast<uint64_t>(largest - groups.begin());
      if (static_cast<double>(*largest) < kOwnShare * static_cast<double>(evidence_.size())) continue;
      // Within the group: the sequence of a node that hosts these ranks.
      const auto of = [&](uint32_t sample, std::vector<uint32_t>& out) {
        for (const uint32_t position : order->of(sample)) {
          if (position % world / count != group) continue;
          out.push_back(static_cast<uint32_t>(position / world * count + position % count));
        }
      };
      // Over several steps: a few neighbouring positions always lie with one group of a large world.
      const std::optional<Chain> here = chain(of, length / world * count);
      if (here && here->top - here->low >= kSteps * count) return Ranks{world, group * count, count};
    }
    return std::nullopt;
  }

  static PlanSpec begun_at(PlanSpec spec, Epoch epoch) {
    spec.first_epoch = epoch.value;
    return spec;
  }

  bool try_one(const PlanSpec& spec, const std::string& hint) {
    if (spec == spec_ || !validate_plan(spec) || !matches(spec, current_)) return false;
    found_.hint = hint;
    found_.order = begun_at(spec, current_);
    return true;
  }

  bool other_seed() {
    const std::optional<int64_t> seed = parse_whole<int64_t>(spec_.seed);
    if (!seed) return false;
    for (const int64_t other : {*seed + 1, *seed - 1, int64_t{0}, int64_t{1}, int64_t{42}}) {
      PlanSpec changed = spec_;
      changed.seed = std::to_string(other);
      if (other >= 0 && try_one(changed, fmt::format("matches seed={} instead of {}", other, *seed)))
        return true;
    }
    return false;
  }

  bool other_setting() {
    const auto flip = [&](const char* key, auto member, auto value) {
      PlanSpec changed = spec_;
      changed.*member = value;
      return try_one(changed, fmt::format("matches {}: does the plan say what the script does?", key));
    };
    for (const char* drop : {"false", "true"}) {
      if (flip(drop[0] == 't' ? "drop_last=true" : "drop_last=false", &PlanSpec::drop_last, drop))
        return true;
    }
    const bool torch_random = spec_.sampler == "torch.random";
    if (torch_random || spec_.sampler == "torch.subset") {
      if (flip(spec_.persistent_workers ? "persistent_workers=false" : "persistent_workers=true",
               &PlanSpec::persistent_workers, !spec_.persistent_workers))
        return true;
    }
    if (torch_random && flip("replacement=true", &PlanSpec::replacement, "true")) return true;
    if (spec_.sampler.starts_with("numpy.") || spec_.sampler == "python.random") {
      for (const char* method : {"permutation", "shuffle"}) {
        if (flip(method[0] == 'p' ? "method=permutation" : "method=shuffle", &PlanSpec::method, method))
          return true;
      }
      if (flip("reseed=epoch", &PlanSpec::reseed, "epoch") || flip("reseed=once", &PlanSpec::reseed, "once"))
        return true;
    }
    for (const uint64_t batch : {spec_.batch * 2, spec_.batch / 2}) {
      // Elsewhere the batch only changes how ranks interleave, which the reorder window covers.
      if (spec_.sampler != "nopfs" || batch == 0) continue;
      PlanSpec changed = spec_;
      changed.batch = batch;
      if (try_one(changed, fmt::format("matches batch={} instead of {}", batch, spec_.batch))) return true;
    }
    return false;
  }

  const std::span<const Sighting> evidence_;
  PlanSpec spec_;
  const PlanPosition at_;
  const Epoch current_;
  const uint32_t first_epoch_;
  const NodeId node_;
  const uint64_t reorder_window_;
  const SequenceMaker& make_;
  const std::function<bool()>& stop_;
  Diagnosis found_;
};

}  // namespace

Diagnosis diagnose(std::span<const Sighting> evidence, const PlanSpec& spec, PlanPosition at, NodeId node,
                   uint64_t reorder_window, const SequenceMaker& make, const std::function<bool()>& stop) {
  return Search(evidence, spec, at, node, std::max<uint64_t>(reorder_window, 1), make, stop).run();
}

}  // namespace clairfs
