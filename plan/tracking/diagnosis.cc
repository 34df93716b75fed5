#include "plan/tracking/diagnosis.h"

#include <algorithm>
#include <memory>
#include <set>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "cache/base/text.h"
#include "plan/sequence/sequence_positions.h"
#include "plan/tracking/chain.h"

namespace clairfs {
namespace {

// Epochs tried beside the first ones and those around the current.
constexpr uint32_t kEpochs = 8;

// Sizes of jobs: each costs a sequence.
constexpr uint64_t kLargestWorld = 128;

// Steps of the job that what was seen must span to tell of its size.
constexpr uint32_t kSteps = 4;

// Share of the sightings that must lie with one group of ranks for it to be this node's: strays aside.
constexpr double kOwnShare = 0.85;

class Search {
 public:
  Search(std::span<const Sighting> evidence, const PlanSpec& spec, Epoch current, NodeId node, uint64_t slack,
         const SequenceMaker& make, const std::function<bool()>& stop)
      : evidence_(evidence),
        spec_(spec),
        current_(current),
        node_(node),
        slack_(slack),
        make_(make),
        stop_(stop) {
    // Any epoch, from its beginning.
    spec_.epochs = spec_.first_epoch = spec_.start_sample = 0;
  }

  Diagnosis run() {
    if (other_epoch() || by_number() || other_world(false) || other_seed() || other_setting()) return found_;
    return Diagnosis();
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
    std::optional<Chain> found = find_chain(evidence_, of, length, {slack_ * stride, stride});
    if (found && found->length < kExplained * found->among) found.reset();
    return found;
  }

  bool matches(const PlanSpec& spec, Epoch epoch) const {
    const auto order = positions(spec, epoch, node_);
    if (!order) return false;
    const auto of = [&](uint32_t sample, std::vector<uint32_t>& out) {
      const auto found = order->of(sample);
      out.insert(out.end(), found.begin(), found.end());
    };
    return chain(of, order->sequence().length()).has_value();
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
      if (!matches(spec_, Epoch(epoch))) continue;
      if (epoch == current_.value && other_world(true)) return true;
      found_.epoch = Epoch(epoch);
      found_.hint = epoch == current_.value ? fmt::format("matches epoch {} at another position", epoch)
                    : epoch + 1 == current_.value
                        ? fmt::format("matches epoch {} again: set_epoch is not called", epoch)
                        : fmt::format("matches epoch {} (now in epoch {}): is set_epoch called?", epoch,
                                      current_.value);
      return true;
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
    for (auto world = worlds.rbegin(); world != worlds.rend(); ++world) {
      const std::optional<Ranks> ranks = ranks_here(*world);
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

  bool try_one(const PlanSpec& spec, const std::string& hint) {
    if (spec == spec_ || !validate_plan(spec) || !matches(spec, current_)) return false;
    found_.hint = hint;
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
      // Elsewhere the batch only changes how ranks interleave, which slack covers.
      if (spec_.sampler != "nopfs" || batch == 0) continue;
      PlanSpec changed = spec_;
      changed.batch = batch;
      if (try_one(changed, fmt::format("matches batch={} instead of {}", batch, spec_.batch))) return true;
    }
    return false;
  }

  const std::span<const Sighting> evidence_;
  PlanSpec spec_;
  const Epoch current_;
  const NodeId node_;
  const uint64_t slack_;
  const SequenceMaker& make_;
  const std::function<bool()>& stop_;
  Diagnosis found_;
};

}  // namespace

Diagnosis diagnose(std::span<const Sighting> evidence, const PlanSpec& spec, Epoch current, NodeId node,
                   uint64_t slack, const SequenceMaker& make, const std::function<bool()>& stop) {
  return Search(evidence, spec, current, node, std::max<uint64_t>(slack, 1), make, stop).run();
}

}  // namespace clairfs
