// Deals the shards of a rank to workers that read at the same time, each shard from front to back.
//
// The workers of a DataLoader each have a separate list: worker w of W reads shards w, w + W, w + 2 W ... of
// the rank's order, or as many together as are a batch. Each such stream is an order by itself: how fast it
// is read does not depend on the others. tf.data's interleave() opens the next shard where one has ended,
// which depends on how long they are: those streams are one order, in which their stripes take turns. So are
// the shards that StreamingDataset copies: the first of a node's workers that comes to a shard copies it.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/formats/samples/sample_index.h"
#include "plan/spec/plan_spec.h"

namespace clairfs {

/// How shards are dealt.
struct ShardDeal {
  uint64_t streams = 1;              ///< shards that are read at the same time, by one rank
  uint64_t run = 1;                  ///< shards of a stream in a row
  bool where_one_has_ended = false;  ///< a stream that ends takes the next shard; else each has its own
};

/// As the plan's sampler and its loader do. REQUIRES: resolved, and its format reads streams.
ShardDeal shard_deal(const PlanSpec& spec);

/// The stripes of each stream in their order; all of them in the memory of four bytes each. `shards` are a
/// rank's, in the order of its sampler.
std::vector<std::vector<uint32_t>> deal_shards(const ShardDeal& deal, std::span<const uint32_t> shards,
                                               const SampleIndex& stripes);

/// One stripe of each stream in turn, as streams that are equally fast read them.
std::vector<uint32_t> in_turn(const std::vector<std::vector<uint32_t>>& streams);

}  // namespace clairfs
