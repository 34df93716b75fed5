#include "plan/placement/placement_map.h"

#include <algorithm>
#include <utility>

#include "plan/placement/rules.h"

namespace clairfs {

PlacementMap::PlacementMap(PlacementTable table, std::shared_ptr<const JobUses> uses)
    : table_(std::move(table)), uses_(std::move(uses)) {
  for (uint32_t c = 0; c < table_.chunks(); ++c) {
    const ChunkId chunk(c);
    if (!table_.home(chunk) && uses_->used(chunk)) homeless_bytes_ += table_.length(chunk);
  }
}

PlacementMap PlacementMap::make(const Catalog& catalog, JobUses uses,
                                std::span<const NodeCapacity> capacities, PlacementRule rule) {
  uses.finish();
  const auto shared = std::make_shared<const JobUses>(std::move(uses));
  PlacementTable table(catalog, capacities);
  if (rule == PlacementRule::nopfs) {
    place_as_nopfs(table, *shared);
    place_segments(table, *shared);
  } else {
    place_homes(table, *shared);
    place_segments(table, *shared);
    place_copies(table, *shared);
  }
  copy_segments(table, *shared);
  return {std::move(table), shared};
}

PlacementMap PlacementMap::without(const std::vector<bool>& dead) const {
  PlacementTable table = table_;
  replace_dead(table, *uses_, dead);
  return {std::move(table), uses_};
}

std::optional<Home> PlacementMap::home(ChunkId chunk) const {
  const auto node = table_.home(chunk);
  if (!node) return std::nullopt;
  return Home{*node, table_.tier(chunk, *node)};
}

std::vector<NodeId> PlacementMap::holders(ChunkId chunk) const {
  const auto home = table_.home(chunk);
  if (!home) return {};
  std::vector<NodeId> holders{*home};
  for (uint32_t node = 0; node < table_.nodes(); ++node) {
    if (NodeId(node) != *home && table_.tier(chunk, NodeId(node)) != Tier::none) holders.emplace_back(node);
  }
  return holders;
}

std::vector<ChunkId> PlacementMap::kept_chunks(NodeId node, bool homes) const {
  std::vector<std::pair<uint32_t, ChunkId>> order;
  for (uint32_t c = 0; c < table_.chunks(); ++c) {
    const ChunkId chunk(c);
    if (table_.tier(chunk, node) == Tier::none || (table_.home(chunk) == node) != homes) continue;
    order.emplace_back(uses_->first_use(chunk), chunk);
  }
  std::sort(order.begin(), order.end());
  std::vector<ChunkId> chunks;
  chunks.reserve(order.size());
  for (const auto& entry : order) chunks.push_back(entry.second);
  return chunks;
}

std::vector<ChunkId> PlacementMap::prefill_order(NodeId node) const {
  return kept_chunks(node, true);
}

std::vector<ChunkId> PlacementMap::copies(NodeId node) const {
  return kept_chunks(node, false);
}

}  // namespace clairfs
