#include "plan/simulator/policies/one_node_cache.h"

#include "cache/memory/ram_arena.h"

namespace clairfs {
namespace {

constexpr OrderId kSimulated(1);

}  // namespace

OneNodeCache::OneNodeCache(std::unique_ptr<const ScenarioDataset> dataset, JobOrder job, TierSpace space)
    : dataset_(std::move(dataset)), job_(std::move(job)), space_(space), policy_(dataset_->catalog()) {}

Holdings OneNodeCache::empty_holdings(uint64_t samples) {
  HoldingsBuilder holdings(samples);
  for (uint32_t sample = 0; sample < samples; ++sample) holdings.add(sample, Holding{kNotYet, 0, 0, true});
  return holdings.build();
}

Result<std::shared_ptr<const PlannedEpoch>> OneNodeCache::plan_epoch(uint32_t epoch) {
  const auto order = job_.order(epoch);
  if (!order) return order.error();
  auto sequence = std::make_shared<const EpochSequence>(node_sequence(job_, *order, Epoch(epoch), 0));
  auto planned = PlannedEpoch::make(std::move(sequence), nullptr, dataset_->index(), dataset_->catalog());
  planned.base = epoch * job_.share(0).count();
  return std::make_shared<const PlannedEpoch>(std::move(planned));
}

// Makes `epoch` and the one after it what the policy knows.
Status OneNodeCache::advance_timeline(uint32_t epoch) {
  if (!planned_.empty() && planned_.front()->epoch().value == epoch) return {};
  while (!planned_.empty() && planned_.front()->epoch().value < epoch) planned_.pop_front();
  while (planned_.size() < 2 && epoch + planned_.size() < job_.epochs()) {
    auto next = plan_epoch(epoch + static_cast<uint32_t>(planned_.size()));
    if (!next) return next.error();
    planned_.push_back(std::move(*next));
  }
  Timeline timeline(std::shared_ptr<const SampleIndex>(&dataset_->index(), [](const SampleIndex*) {}));
  for (const auto& planned : planned_) timeline.append(planned);
  timeline.set_complete(epoch + planned_.size() >= job_.epochs());
  policy_.set_timeline(kSimulated, std::move(timeline), planned_.front()->base);
  return {};
}

Status OneNodeCache::read_from_pfs(Holdings& holdings, const PfsRead& read) {
  const uint64_t position = read.epoch * job_.share(0).count() + read.k;
  if (position < next_position_) return {};
  next_position_ = position + 1;
  const Status known = advance_timeline(read.epoch);
  if (!known) return known;
  policy_.set_staged(kSimulated, position);
  const ChunkId chunk = dataset_->chunk_of(read.sample);
  const uint32_t length = dataset_->catalog().range(chunk).length;
  const TierChoice choice = policy_.choose_tier(chunk, length, space_, {kSimulated, position});
  for (const ChunkId victim : choice.evict) {
    room(choice.tier) += footprint(choice.tier, dataset_->catalog().range(victim).length);
    policy_.dropped(victim, choice.tier);
    holdings.of(dataset_->sample_of(victim)).front().available_at = kNotYet;
  }
  if (choice.tier == Tier::none) return {};
  room(choice.tier) -= footprint(choice.tier, length);
  policy_.kept(chunk, choice.tier);
  Holding& copy = holdings.of(read.sample).front();
  copy.available_at = not_after(read.end);
  copy.storage = choice.tier == Tier::ram ? 0 : 1;
  return {};
}

}  // namespace clairfs
