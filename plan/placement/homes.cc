// Homes: greedy by descending number of uses, with deferral; then each node's chunks by tiers.
//
//   for each class of chunks, the most used first:                                    choose_nodes()
//     for level = the most uses by one node, down to 0:
//       each chunk that its best node uses `level` times, and each that waits for this level,
//         goes to the roomiest node that uses it so often and has room (at level 0: to any with room),
//         or else waits for the level of the next best node that has room
//   each node sorts its chunks into its tiers, the most used first                     sort_into_tiers()
//   each chunk without a home goes where it still fits                                 fill_gaps()
//
// A class is a number of uses by all nodes together. Chunks that find room in any case are one class: among
// them only local hits count. At any time a chunk has one home at most, and no tier has more than it takes. A
// class gets the room that those before it have left. At the end no chunk without a home would fit anywhere.
#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "plan/placement/chunk_order.h"
#include "plan/placement/rules.h"
#include "plan/placement/use_tally.h"

namespace clairfs {
namespace {

class HomePlacer {
 public:
  HomePlacer(PlacementTable& table, const JobUses& uses)
      : table_(table), uses_(uses), tally_(uses), max_uses_(table.chunks()), chosen_(table.nodes()) {}

  void run() {
    measure();
    list_chunks();
    for_each_run(
        order_, [this](ChunkId c) { return priority(c); },
        [this](std::span<const ChunkId> equals) { choose_nodes(equals); });
    sort_into_tiers();
    fill_gaps();
  }

 private:
  // With NVMe anywhere a chunk may have to lie there, where it takes most.
  void measure() {
    for (uint32_t node = 0; node < table_.nodes(); ++node) {
      if (table_.room(NodeId(node)).nvme > 0) worst_case_tier_ = Tier::nvme;
    }
    for (uint32_t c = 0; c < table_.chunks(); ++c) {
      if (uses_.total(ChunkId(c)) == 0) continue;
      const uint64_t bytes = table_.bytes(ChunkId(c), worst_case_tier_);
      unit_ = std::gcd(unit_, bytes);
      largest_ = std::max(largest_, bytes);
    }
  }

  void list_chunks() {
    std::map<uint32_t, uint64_t, std::greater<>> bytes_by_total;
    std::vector<ChunkId> used;
    for (uint32_t c = 0; c < table_.chunks(); ++c) {
      const ChunkId chunk(c);
      const uint32_t total = uses_.total(chunk);
      if (total == 0) continue;
      tally_.take(chunk);
      max_uses_[c] = tally_.most();
      used.push_back(chunk);
      bytes_by_total[total] += table_.bytes(chunk, worst_case_tier_);
    }
    if (used.empty()) return;
    first_priority_ = uint64_t{bytes_by_total.begin()->first} + 1;
    uint64_t left = certain_capacity();
    for (const auto& [total, bytes] : bytes_by_total) {
      contended_below_ = total;
      if (bytes > left) break;
      left -= bytes;
      contended_below_ = 0;
    }
    used = by_descending(used, [this](ChunkId c) { return max_uses_[c.index()]; });
    order_ = by_descending(used, [this](ChunkId c) { return priority(c); });
  }

  // A chunk without a home is read from the PFS as often as it is used, so the most used ones come first. But
  // among those that find a home in any case, only local hits count.
  uint64_t priority(ChunkId chunk) const {
    const uint32_t total = uses_.total(chunk);
    return total > contended_below_ ? first_priority_ : total;
  }

  // What chunks may take so that all of them find room, in whatever order they come. At the end of a tier
  // less than a chunk is lost; where all chunks are of one size, only what does not hold a whole one.
  uint64_t certain_capacity() const {
    uint64_t capacity = 0;
    const uint64_t lost = largest_ - unit_;
    for (uint32_t node = 0; node < table_.nodes(); ++node) {
      const NodeCapacity& room = table_.room(NodeId(node));
      for (const uint64_t tier : {room.ram, room.nvme}) {
        const uint64_t bytes = tier / unit_ * unit_;
        capacity += bytes - std::min(bytes, lost);
      }
    }
    return capacity;
  }

  bool fits(ChunkId chunk, NodeId node) const { return table_.tier_with_room(chunk, node) != Tier::none; }

  // Each chunk to the node that uses it most. When that is full it waits for those chunks that their best
  // node uses no more than this one's next best node does.
  void choose_nodes(std::span<const ChunkId> equals) {
    const uint32_t most = max_uses_[equals.front().index()];
    std::vector<std::vector<ChunkId>> waiting(most + 1);
    for (uint32_t level = most + 1; level-- > 0;) {
      const auto end = std::find_if(equals.begin(), equals.end(),
                                    [&](ChunkId c) { return max_uses_[c.index()] != level; });
      const auto turn = equals.first(static_cast<size_t>(end - equals.begin()));
      const auto choose = [&](ChunkId chunk) {
        choose_node(chunk, level, waiting);
        return true;
      };
      for_each_scattered(turn, choose);
      for_each_scattered(std::exchange(waiting[level], {}), choose);
      equals = equals.subspan(turn.size());
    }
  }

  void choose_node(ChunkId chunk, uint32_t level, std::vector<std::vector<ChunkId>>& waiting) {
    if (level == 0) return choose_any_node(chunk);
    tally_.take(chunk);
    std::optional<NodeId> best;
    uint32_t next_level = 0;
    for (const NodeId user : tally_.users()) {
      const uint32_t count = tally_.count(user);
      if (!fits(chunk, user)) continue;  // as is every node that uses it more often than `level`
      if (count < level) {
        next_level = std::max(next_level, count);
      } else if (!best || roomier(user, *best)) {
        best = user;
      }
    }
    if (best) return choose(chunk, *best);
    waiting[next_level].push_back(chunk);
  }

  void choose_any_node(ChunkId chunk) {
    std::optional<NodeId> best;
    for (uint32_t n = 0; n < table_.nodes(); ++n) {
      const NodeId node(n);
      if ((!best || roomier(node, *best)) && fits(chunk, node)) best = node;
    }
    if (best) choose(chunk, *best);
  }

  bool roomier(NodeId a, NodeId b) const {
    const auto room = [this](NodeId node) { return table_.room(node).ram + table_.room(node).nvme; };
    return room(a) != room(b) ? room(a) > room(b) : a < b;
  }

  void choose(ChunkId chunk, NodeId node) {
    keep(chunk, node);
    chosen_[node.index()].push_back(chunk);
  }

  void keep(ChunkId chunk, NodeId node) {
    table_.keep(chunk, node, table_.tier_with_room(chunk, node));
    table_.set_home(chunk, node);
  }

  // The more a node's chunk is read, by whomever, the faster its tier; among equals, those that the node
  // itself uses more were chosen first. In another order not all may fit: the least read ones lose their
  // home.
  void sort_into_tiers() {
    for (uint32_t n = 0; n < table_.nodes(); ++n) {
      const NodeId node(n);
      const auto order = by_descending(chosen_[n], [this](ChunkId c) { return uses_.total(c); });
      if (order == chosen_[n]) continue;
      for (const ChunkId chunk : order) {
        table_.drop(chunk, node);
        table_.set_home(chunk, std::nullopt);
      }
      for (const ChunkId chunk : order) {
        if (fits(chunk, node)) keep(chunk, node);
      }
    }
  }

  // Where chunks are of many sizes, some that found no room may fit what others left.
  void fill_gaps() {
    for (const ChunkId chunk : order_) {
      if (table_.home(chunk)) continue;
      std::optional<NodeId> best;
      for (uint32_t n = 0; n < table_.nodes(); ++n) {
        const NodeId node(n);
        if (!fits(chunk, node)) continue;
        if (!best) tally_.take(chunk);
        if (!best || tally_.count(node) > tally_.count(*best)) best = node;
      }
      if (best) keep(chunk, *best);
    }
  }

  PlacementTable& table_;
  const JobUses& uses_;
  UseTally tally_;
  Tier worst_case_tier_ = Tier::ram;          // in which chunks take most
  uint64_t unit_ = 0;                         // divides what each used chunk takes there
  uint64_t largest_ = 0;                      // bytes that a used chunk takes there
  uint32_t contended_below_ = 0;              // not all chunks with so many uses or fewer find room
  uint64_t first_priority_ = 0;               // of those with more uses
  std::vector<uint32_t> max_uses_;            // by chunk: uses by the node that uses it most
  std::vector<ChunkId> order_;                // by priority, then by max_uses_
  std::vector<std::vector<ChunkId>> chosen_;  // by rank of the node
};

}  // namespace

void place_homes(PlacementTable& table, const JobUses& uses) {
  HomePlacer(table, uses).run();
}

}  // namespace clairfs
