#include "plan/sequence/shard_streams.h"

#include <algorithm>
#include <utility>

namespace clairfs {
namespace {

void append_shard(const SampleIndex& stripes, uint32_t shard, std::vector<uint32_t>& stream) {
  const auto [first, end] = stripes.parts(shard);
  for (uint32_t stripe = first; stripe < end; ++stripe) stream.push_back(stripe);
}

}  // namespace

ShardDeal shard_deal(const PlanSpec& spec) {
  // interleave() reads whatever list of files it gets, also one that the script has made itself.
  if (spec.sampler.starts_with("tf.") || spec.cycle_length != 0) {
    const uint64_t cycle = std::max<uint64_t>(spec.cycle_length, 1);
    return {.streams = cycle, .where_one_has_ended = cycle > 1};
  }
  if (spec.copies_shards()) {
    const uint64_t copiers = spec.ranks_per_node * std::max<uint64_t>(spec.workers, 1);
    return {.streams = copiers, .where_one_has_ended = true};
  }
  // WebDataset's batches are of samples, not of shards.
  const uint64_t run = spec.sampler == "webdataset" ? 1 : spec.batch;
  return {.streams = std::max<uint64_t>(spec.workers, 1), .run = run};
}

std::vector<std::vector<uint32_t>> deal_shards(const ShardDeal& deal, std::span<const uint32_t> shards,
                                               const SampleIndex& stripes) {
  std::vector<std::vector<uint32_t>> streams(deal.streams);
  for (size_t k = 0; k < shards.size(); ++k) {
    auto stream = streams.begin() + static_cast<std::ptrdiff_t>(k / deal.run % deal.streams);
    if (deal.where_one_has_ended) {
      stream = std::min_element(streams.begin(), streams.end(),
                                [](const auto& a, const auto& b) { return a.size() < b.size(); });
    }
    append_shard(stripes, shards[k], *stream);
  }
  return streams;
}

std::vector<uint32_t> in_turn(const std::vector<std::vector<uint32_t>>& streams) {
  size_t longest = 0;
  size_t total = 0;
  for (const auto& stream : streams) {
    longest = std::max(longest, stream.size());
    total += stream.size();
  }
  std::vector<uint32_t> merged;
  merged.reserve(total);
  for (size_t turn = 0; turn < longest; ++turn) {
    for (const auto& stream : streams) {
      if (turn < stream.size()) merged.push_back(stream[turn]);
    }
  }
  return merged;
}

}  // namespace clairfs
