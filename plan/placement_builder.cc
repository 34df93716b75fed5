#include "plan/placement_builder.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include "cache/ram_arena.h"

namespace clairfs {
namespace {

/// The finalizer of MurmurHash3 (A. Appleby): a bijection, so that no two chunks tie.
uint32_t hash_of(ChunkId chunk) {
  uint32_t h = chunk.value;
  h = (h ^ (h >> 16)) * 0x85EBCA6B;
  h = (h ^ (h >> 13)) * 0xC2B2AE35;
  return h ^ (h >> 16);
}

/// One chunk's uses by node.
class Tally {
 public:
  explicit Tally(const JobUses& uses) : uses_(uses), counts_(uses.nodes()) {}

  void take(ChunkId chunk) {
    for (const Rank user : users_) counts_[user.index()] = 0;
    users_.clear();
    uses_.for_each_use(chunk, [this](Rank user, uint32_t count) {
      if (counts_[user.index()] == 0) users_.push_back(user);
      counts_[user.index()] += count;
    });
  }
  /// Each once, in no particular order.
  const std::vector<Rank>& users() const { return users_; }
  uint32_t count(Rank node) const { return counts_[node.index()]; }
  uint32_t most() const {
    uint32_t most = 0;
    for (const Rank user : users_) most = std::max(most, count(user));
    return most;
  }

 private:
  const JobUses& uses_;
  std::vector<uint32_t> counts_;
  std::vector<Rank> users_;
};

/// A chunk that wants a home, in the order in which they get one.
struct Wish {
  uint32_t rank = 0;  // chunks of a higher rank come first
  uint32_t most = 0;  // uses by the node that uses it most
  uint32_t hash = 0;
  ChunkId chunk;

  friend bool operator<(const Wish& a, const Wish& b) {
    return std::tuple(b.rank, b.most, a.hash) < std::tuple(a.rank, a.most, b.hash);
  }
};

// First which node, then in which tier: until the node is settled, its tiers count as one.
class HomePlacer {
 public:
  HomePlacer(PlacementTable& table, const JobUses& uses)
      : table_(table), uses_(uses), tally_(uses), chosen_(table.chunks(), kNobody) {}

  void run() {
    measure();
    wishes_ = list_wishes();
    for (auto group = wishes_.cbegin(); group != wishes_.cend();) {
      const auto end =
          std::find_if(group, wishes_.cend(), [&](const Wish& w) { return w.rank != group->rank; });
      choose_nodes({group, end});
      group = end;
    }
    choose_tiers();
    fill_gaps();
  }

 private:
  static constexpr uint16_t kNobody = std::numeric_limits<uint16_t>::max();

  // In a node with NVMe, a chunk may have to lie there.
  Tier dearest_tier(Rank node) const { return table_.room(node).nvme > 0 ? Tier::nvme : Tier::ram; }
  bool fits(ChunkId chunk, Rank node) const {
    return table_.bytes(chunk, dearest_tier(node)) <= room_[node.index()] &&
           table_.tier_with_room(chunk, node) != Tier::none;
  }

  // Where all chunks are of one size, a tier holds whole ones only.
  void measure() {
    for (uint32_t c = 0; c < table_.chunks(); ++c) {
      if (uses_.total(ChunkId(c)) == 0) continue;
      const uint64_t bytes = table_.bytes(ChunkId(c), Tier::nvme);
      unit_ = std::gcd(unit_, bytes);
      largest_ = std::max(largest_, bytes);
    }
    unit_ = std::max(unit_, kPageSize);
    for (uint32_t node = 0; node < table_.nodes(); ++node) {
      const NodeCapacity& room = table_.room(Rank(node));
      room_.push_back(room.ram / unit_ * unit_ + room.nvme / unit_ * unit_);
    }
  }

  // Every chunk without a home is read from the PFS as often as it is used, so the most used ones come first.
  // But those that certainly find one come in the order that is best for local hits.
  std::vector<Wish> list_wishes() {
    std::vector<Wish> wishes;
    std::map<uint32_t, uint64_t, std::greater<>> bytes_by_total;
    for (uint32_t c = 0; c < table_.chunks(); ++c) {
      const ChunkId chunk(c);
      const uint32_t total = uses_.total(chunk);
      if (total == 0) continue;
      tally_.take(chunk);
      wishes.push_back({total, tally_.most(), hash_of(chunk), chunk});
      bytes_by_total[total] += table_.bytes(chunk, Tier::nvme);
    }
    const uint64_t capacity = certain_capacity();
    uint64_t certain = 0;
    auto total = bytes_by_total.cbegin();
    while (total != bytes_by_total.cend() && certain + total->second <= capacity) {
      certain += total->second;
      ++total;
    }
    const uint32_t uncertain = total == bytes_by_total.cend() ? 0 : total->first;
    for (Wish& wish : wishes) {
      if (wish.rank > uncertain) wish.rank = std::numeric_limits<uint32_t>::max();
    }
    std::sort(wishes.begin(), wishes.end());
    return wishes;
  }

  // What chunks take that is certain to find room in some tier, in whatever order they come.
  uint64_t certain_capacity() const {
    uint64_t capacity = 0;
    const uint64_t lost = largest_ - std::min(largest_, unit_);
    for (uint32_t node = 0; node < table_.nodes(); ++node) {
      const NodeCapacity& room = table_.room(Rank(node));
      for (const uint64_t tier : {room.ram, room.nvme}) {
        const uint64_t bytes = tier / unit_ * unit_;
        capacity += bytes - std::min(bytes, lost);
      }
    }
    return capacity;
  }

  // Chunks of one rank: each to the node that uses it most; when that is full, it waits for the turn of those
  // that their best node uses as often as its next best one uses it.
  void choose_nodes(std::span<const Wish> wishes) {
    std::vector<std::vector<ChunkId>> waiting(wishes.front().most + 1);
    size_t next = 0;
    for (uint32_t level = wishes.front().most + 1; level-- > 0;) {
      for (; next < wishes.size() && wishes[next].most == level; ++next) {
        choose_node(wishes[next].chunk, level, waiting);
      }
      for (const ChunkId chunk : std::exchange(waiting[level], {})) choose_node(chunk, level, waiting);
    }
  }

  void choose_node(ChunkId chunk, uint32_t level, std::vector<std::vector<ChunkId>>& waiting) {
    if (level == 0) {
      const Rank roomiest = roomiest_node();
      if (fits(chunk, roomiest)) return choose(chunk, roomiest);
      for (uint32_t node = 0; node < table_.nodes(); ++node) {
        if (fits(chunk, Rank(node))) return choose(chunk, Rank(node));
      }
      return;
    }
    tally_.take(chunk);
    std::optional<Rank> best;
    uint32_t next_level = 0;
    for (const Rank user : tally_.users()) {
      if (!fits(chunk, user)) continue;
      const uint32_t count = tally_.count(user);
      if (count < level) next_level = std::max(next_level, count);
      if (count != level) continue;
      const auto preference = [this](Rank node) { return std::pair(room_[node.index()], ~node.value); };
      if (!best || preference(user) > preference(*best)) best = user;
    }
    if (best) return choose(chunk, *best);
    waiting[next_level].push_back(chunk);
  }

  Rank roomiest_node() const {
    return Rank(static_cast<uint32_t>(std::max_element(room_.begin(), room_.end()) - room_.begin()));
  }

  void choose(ChunkId chunk, Rank node) {
    room_[node.index()] -= table_.bytes(chunk, dearest_tier(node));
    chosen_[chunk.index()] = static_cast<uint16_t>(node.value);
  }

  // The more a node's chunk is read, by whomever, the faster the tier.
  void choose_tiers() {
    std::vector<std::vector<ChunkId>> chunks(table_.nodes());
    for (const Wish& wish : wishes_) {
      const uint16_t node = chosen_[wish.chunk.index()];
      if (node != kNobody) chunks[node].push_back(wish.chunk);
    }
    for (uint32_t node = 0; node < table_.nodes(); ++node) {
      using Key = std::tuple<uint32_t, uint32_t, uint32_t, ChunkId>;
      std::vector<Key> order;
      order.reserve(chunks[node].size());
      for (const ChunkId chunk : chunks[node]) {
        order.emplace_back(uses_.total(chunk), uses_.uses(chunk, Rank(node)), hash_of(chunk), chunk);
      }
      std::sort(order.begin(), order.end(), std::greater<>());
      for (const Key& key : order) settle(std::get<ChunkId>(key), Rank(node));
    }
  }

  void settle(ChunkId chunk, Rank node) {
    const Tier tier = table_.tier_with_room(chunk, node);
    if (tier == Tier::none) return;  // the tiers hold less than one of their common size would
    table_.keep(chunk, node, tier);
    table_.set_home(chunk, node);
  }

  // What found no node, or no tier there, may fit somewhere else.
  void fill_gaps() {
    for (const Wish& wish : wishes_) {
      const ChunkId chunk = wish.chunk;
      if (table_.home(chunk)) continue;
      std::optional<Rank> best;
      bool taken = false;
      for (uint32_t n = 0; n < table_.nodes(); ++n) {
        const Rank node(n);
        if (table_.tier_with_room(chunk, node) == Tier::none) continue;
        if (!taken) tally_.take(chunk);
        taken = true;
        if (!best || tally_.count(node) > tally_.count(*best)) best = node;
      }
      if (best) settle(chunk, *best);
    }
  }

  PlacementTable& table_;
  const JobUses& uses_;
  Tally tally_;
  uint64_t unit_ = 0;     // divides what each used chunk takes
  uint64_t largest_ = 0;  // bytes that a used chunk takes
  std::vector<uint64_t> room_;
  std::vector<Wish> wishes_;
  std::vector<uint16_t> chosen_;  // by chunk: node
};

}  // namespace

void place_homes(PlacementTable& table, const JobUses& uses) {
  HomePlacer(table, uses).run();
}

void place_copies(PlacementTable& table, const JobUses& uses) {
  for (uint32_t n = 0; n < table.nodes(); ++n) {
    const Rank node(n);
    if (table.room(node).ram < kPageSize && table.room(node).nvme < kPageSize) continue;
    const std::vector<uint32_t> counts = uses.uses_of(node);
    std::vector<std::tuple<uint32_t, uint32_t, ChunkId>> order;
    for (uint32_t c = 0; c < table.chunks(); ++c) {
      const ChunkId chunk(c);
      if (counts[c] == 0 || !table.home(chunk) || table.tier(chunk, node) != Tier::none) continue;
      order.emplace_back(counts[c], hash_of(chunk), chunk);
    }
    std::sort(order.begin(), order.end(), std::greater<>());
    for (const auto& entry : order) {
      const ChunkId chunk = std::get<ChunkId>(entry);
      const Tier tier = table.tier_with_room(chunk, node);
      if (tier != Tier::none) table.keep(chunk, node, tier);
    }
  }
}

void replace_dead(PlacementTable& table, const JobUses& uses, const std::vector<bool>& dead) {
  std::vector<ChunkId> orphans;
  for (uint32_t n = 0; n < table.nodes(); ++n) {
    if (!dead[n]) continue;
    for (uint32_t c = 0; c < table.chunks(); ++c) {
      const ChunkId chunk(c);
      if (table.tier(chunk, Rank(n)) == Tier::none) continue;
      if (table.home(chunk) == Rank(n)) {
        orphans.push_back(chunk);
        table.set_home(chunk, std::nullopt);
      }
      table.drop(chunk, Rank(n));
    }
    table.close(Rank(n));
  }
  Tally tally(uses);
  for (const ChunkId chunk : orphans) {
    tally.take(chunk);
    std::optional<Rank> best;
    for (uint32_t n = 0; n < table.nodes(); ++n) {
      const Rank node(n);
      if (table.tier(chunk, node) == Tier::none && table.tier_with_room(chunk, node) == Tier::none) continue;
      const auto preference = [&](Rank r) {
        return std::pair(table.tier(chunk, r) != Tier::none, tally.count(r));
      };
      if (!best || preference(node) > preference(*best)) best = node;
    }
    if (!best) continue;
    if (table.tier(chunk, *best) == Tier::none) table.keep(chunk, *best, table.tier_with_room(chunk, *best));
    table.set_home(chunk, *best);
  }
}

}  // namespace clairfs
