#include "plan/retention/next_use_policy.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace clairfs {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Of a shared chunk that may be brought in: only what is never used is used later.
constexpr double kBeforeNever = std::numeric_limits<double>::max();

// Looking at so many positions is cheaper than beginning anew, and takes microseconds; READs wait for the
// lock.
constexpr uint64_t kFewPositions = 4096;

constexpr uint8_t bit(Tier tier) {
  return static_cast<uint8_t>(1U << static_cast<unsigned>(tier));
}
constexpr uint8_t listed(Tier tier) {
  return static_cast<uint8_t>(bit(tier) << 4);
}
constexpr uint8_t kInPageCache = bit(Tier::none);
static_assert(kTierValues <= 4, "a byte has two bits for each value");
constexpr size_t slot(Tier tier) {
  return static_cast<size_t>(tier);
}

}  // namespace

NextUsePolicy::NextUsePolicy(const Catalog& catalog)
    : catalog_(catalog), spread_(catalog.chunk_count()), resident_(catalog.chunk_count()) {}

// Ranks and epochs of one plan have the index in common.
std::shared_ptr<const SharedChunks> NextUsePolicy::shared_chunks(const Timeline& timeline) const {
  if (timeline.empty()) return nullptr;
  {
    MutexLock lock(mutex_);
    for (const auto& [order, plan] : plans_) {
      if (!plan.timeline.empty() && &plan.timeline.index() == &timeline.index()) return plan.shared;
    }
  }
  return SharedChunks::make(timeline.index(), catalog_);
}

void NextUsePolicy::set_timeline(OrderId order, Timeline timeline, uint64_t staged) {
  auto shared = shared_chunks(timeline);
  MutexLock lock(mutex_);
  const bool added = !plans_.contains(order);
  Plan& plan = plans_[order];
  plan.shared = std::move(shared);
  plan.timeline = std::move(timeline);
  plan.staged = staged;
  reset_cursors(plan);
  if (added) look_anew();
}

void NextUsePolicy::reset_cursors(Plan& plan) const {
  std::vector<uint64_t> ends;
  for (const auto& epoch : plan.timeline.epochs()) ends.push_back(slots(*epoch));
  plan.cursors.fill(ends);
}

// The plans are others than before: any resident chunk may be without a use, and any cursor may have passed
// one.
void NextUsePolicy::look_anew() {
  for (const Tier tier : {Tier::ram, Tier::nvme}) {
    for (const ChunkId chunk : list_residents(tier)) list_useless(chunk, tier);
  }
  for (auto& [order, plan] : plans_) reset_cursors(plan);
}

void NextUsePolicy::set_staged(OrderId order, uint64_t staged) {
  MutexLock lock(mutex_);
  const auto found = plans_.find(order);
  if (found == plans_.end()) return;
  Plan& plan = found->second;
  const uint64_t before = std::exchange(plan.staged, staged);
  if (staged < before || staged - before > kFewPositions) return look_anew();
  for (uint64_t position = before; position < staged; ++position) {
    if (!plan.timeline.holds(position)) continue;
    for_each_chunk(plan.timeline.index(), catalog_, plan.timeline.sample_at(position), [&](ChunkId chunk) {
      mutex_.assert_held();
      for (const Tier tier : {Tier::ram, Tier::nvme}) {
        if ((resident_[chunk.index()] & bit(tier)) != 0) raise_cursors(chunk, tier);
      }
    });
  }
}

void NextUsePolicy::remove(OrderId order) {
  MutexLock lock(mutex_);
  if (plans_.erase(order) > 0) look_anew();
}

void NextUsePolicy::set_in_page_cache(ChunkId chunk, bool there) {
  MutexLock lock(mutex_);
  uint8_t& bits = resident_[chunk.index()];
  bits &= static_cast<uint8_t>(~kInPageCache);
  if (there && !shared(chunk)) bits |= kInPageCache;
  for (const Tier tier : {Tier::ram, Tier::nvme}) {
    if ((bits & bit(tier)) != 0) raise_cursors(chunk, tier);
  }
}

// How many candidates of an epoch there can be, in the order of slot_of().
uint64_t NextUsePolicy::slots(const PlannedEpoch& epoch) const {
  return epoch.uses_once ? spread_.count() : epoch.length();
}

// Where a chunk that is used at `position` comes among those of the epoch: the last makes room first.
uint64_t NextUsePolicy::slot_of(const PlannedEpoch& epoch, ChunkId chunk, uint64_t position) const {
  return epoch.uses_once ? spread_.rank(chunk) : position - epoch.base;
}

// Whole epochs from `staged` to the one that uses the chunk at `position`, and its place within that.
double NextUsePolicy::distance(const Plan& plan, ChunkId chunk, uint64_t position) const {
  const PlannedEpoch& epoch = plan.timeline.epoch(plan.timeline.position_of(position).epoch);
  const uint64_t staged = std::max(plan.staged, plan.timeline.begin());
  const uint64_t epochs = epoch.epoch().value - plan.timeline.position_of(staged).epoch.value;
  const auto place = static_cast<double>(slot_of(epoch, chunk, position));
  return static_cast<double>(epochs) + place / static_cast<double>(slots(epoch));
}

// Epochs until the next use by any plan but `served`; nothing if no plan will use it as far as is known. A
// plan that uses it now and whose next epoch is not known yet is taken to use it an epoch later again.
std::optional<double> NextUsePolicy::distance_of(ChunkId chunk, const Use& served) const {
  if ((resident_[chunk.index()] & kInPageCache) != 0) return std::nullopt;
  std::optional<double> least;
  const auto add = [&](double value) { least = std::min(least.value_or(kNever), value); };
  for (const auto& [order, plan] : plans_) {
    if (plan.timeline.empty()) continue;
    const bool uses_it = order == served.order && plan.timeline.holds(served.position);
    const uint64_t used = std::max(plan.staged, served.position);
    const auto use =
        plan.timeline.next_use(chunk, uses_it ? std::max(plan.staged, served.position + 1) : plan.staged);
    if (use) {
      add(distance(plan, chunk, *use));
    } else if (uses_it && !plan.timeline.complete()) {
      add(distance(plan, chunk, used) + 1);
    }
  }
  return least;
}

// What choose_tier() goes by: the distance after the use that the fetch is for; nothing if the chunk is not
// worth keeping.
std::optional<double> NextUsePolicy::rank(ChunkId chunk, const Use& served) const {
  if (!shared(chunk)) return distance_of(chunk, served);
  return has_an_epochs_uses(chunk) ? std::optional(kBeforeNever) : std::nullopt;
}

bool NextUsePolicy::shared(ChunkId chunk) const {
  return std::any_of(plans_.begin(), plans_.end(), [&](const auto& entry) {
    return entry.second.shared != nullptr && entry.second.shared->contains(chunk);
  });
}

// Whether at least as many uses of the chunk are to come as an epoch has of it.
bool NextUsePolicy::has_an_epochs_uses(ChunkId chunk) const {
  size_t an_epoch = 0;
  size_t to_come = 0;
  for (const auto& [order, plan] : plans_) {
    const Timeline::UseCount uses = plan.timeline.count_uses(chunk, plan.staged);
    if (uses.an_epoch > 0 && !plan.timeline.complete()) return true;
    to_come += uses.to_come;
    an_epoch += uses.an_epoch;
  }
  return to_come > 0 && to_come >= an_epoch;
}

bool NextUsePolicy::covered(ChunkId chunk) const {
  return std::any_of(plans_.begin(), plans_.end(), [&](const auto& entry) {
    const Timeline& timeline = entry.second.timeline;
    return !timeline.empty() && timeline.next_use(chunk, timeline.begin());
  });
}

// The chunk, resident in `tier`, has its next use where no cursor may have passed.
void NextUsePolicy::raise_cursors(ChunkId chunk, Tier tier) const {
  bool used = false;
  if ((resident_[chunk.index()] & kInPageCache) != 0) return list_useless(chunk, tier);
  for (auto& [order, plan] : plans_) {
    if (plan.timeline.empty()) continue;
    const auto use = plan.timeline.next_use(chunk, plan.staged);
    if (!use) continue;
    used = true;
    const Epoch number = plan.timeline.position_of(*use).epoch;
    uint64_t& cursor = plan.cursors[slot(tier)][number.value - plan.timeline.first().value];
    cursor = std::max(cursor, slot_of(plan.timeline.epoch(number), chunk, *use) + 1);
  }
  if (!used) list_useless(chunk, tier);
}

void NextUsePolicy::list_useless(ChunkId chunk, Tier tier) const {
  uint8_t& bits = resident_[chunk.index()];
  if ((bits & listed(tier)) != 0) return;
  bits |= listed(tier);
  useless_[slot(tier)].push_back(chunk);
}

// A resident chunk that no plan will use. While a plan's next epoch is not known, nothing can be said of its
// chunks.
std::optional<NextUsePolicy::Candidate> NextUsePolicy::useless(Tier tier) const {
  auto& list = useless_[slot(tier)];
  std::vector<ChunkId> undecided;
  std::optional<Candidate> found;
  const bool unknown =
      std::any_of(plans_.begin(), plans_.end(), [](const auto& p) { return !p.second.timeline.complete(); });
  while (!list.empty() && !found) {
    const ChunkId chunk = list.back();
    list.pop_back();
    resident_[chunk.index()] &= static_cast<uint8_t>(~listed(tier));
    if ((resident_[chunk.index()] & bit(tier)) == 0 || distance_of(chunk)) continue;
    const bool in_page_cache = (resident_[chunk.index()] & kInPageCache) != 0;
    if (unknown && !in_page_cache && covered(chunk)) {
      undecided.push_back(chunk);
      if (undecided.size() >= 16) break;  // the rest will look the same
      continue;
    }
    found = Candidate{chunk, tier, kNever};
  }
  for (const ChunkId chunk : undecided) list_useless(chunk, tier);
  if (found) list_useless(found->chunk, tier);  // a candidate only; passed over once it is no longer resident
  return found;
}

// Of the samples or chunks at a slot: the one that makes room first, if its next use is in this epoch.
std::optional<NextUsePolicy::Candidate> NextUsePolicy::candidate_at(const Plan& plan,
                                                                    const PlannedEpoch& epoch, uint64_t slot,
                                                                    Tier tier) const {
  std::optional<Candidate> found;
  const auto look_at = [&](ChunkId chunk) {
    mutex_.assert_held();
    if ((resident_[chunk.index()] & bit(tier)) == 0 || shared(chunk)) return;
    const auto use = plan.timeline.next_use(chunk, plan.staged);
    if (!use || *use < epoch.base || *use >= epoch.end() || slot_of(epoch, chunk, *use) != slot) return;
    const auto least = distance_of(chunk);
    if (!least || *least < distance(plan, chunk, *use))
      return;  // another plan uses it sooner, and its cursor will find it
    if (!found || *least > found->distance) found = Candidate{chunk, tier, *least};
  };
  if (epoch.uses_once) {
    look_at(spread_.at(static_cast<uint32_t>(slot)));
  } else {
    const auto sample = epoch.sequence->sample_at(static_cast<uint32_t>(slot));
    for_each_chunk(plan.timeline.index(), catalog_, sample, look_at);
  }
  return found;
}

std::optional<NextUsePolicy::Candidate> NextUsePolicy::farthest(Plan& plan, Tier tier) const {
  const auto& epochs = plan.timeline.epochs();
  // A plan of records may have millions of positions and hardly a chunk that is not shared: the rest is for
  // the next call.
  uint64_t steps = plan.shared ? kFewPositions : std::numeric_limits<uint64_t>::max();
  for (size_t e = epochs.size(); e-- > 0;) {
    const PlannedEpoch& epoch = *epochs[e];
    if (epoch.end() <= plan.staged) break;
    const uint64_t passed = epoch.uses_once ? 0 : std::max(plan.staged, epoch.base) - epoch.base;
    for (uint64_t& cursor = plan.cursors[slot(tier)][e]; cursor > passed; --cursor, --steps) {
      if (steps == 0) return std::nullopt;
      const auto found = candidate_at(plan, epoch, cursor - 1, tier);
      if (found) return found;
    }
  }
  return std::nullopt;
}

// What is used later than `own_distance` and, among that, last. Shared chunks that have a use stay.
std::optional<NextUsePolicy::Candidate> NextUsePolicy::farthest(Tier tier, double own_distance) const {
  if (auto candidate = useless(tier)) return candidate;
  if (own_distance == kBeforeNever) return std::nullopt;
  std::optional<Candidate> best;
  for (auto& [order, plan] : plans_) {
    const auto candidate = farthest(plan, tier);
    if (candidate && (!best || candidate->distance > best->distance)) best = candidate;
  }
  return best;
}

// Makes room in one tier by dropping what is used later than `own_distance`, the farthest first.
TierChoice NextUsePolicy::replace(double own_distance, uint64_t length, const TierSpace& space) const {
  const auto ram = farthest(Tier::ram, own_distance);
  // A store that cannot be written keeps what it has.
  const auto nvme = space.nvme_writable ? farthest(Tier::nvme, own_distance) : std::nullopt;
  if (!ram && !nvme) return {};
  const bool from_nvme = !ram || (nvme && nvme->distance > ram->distance);
  const Tier tier = from_nvme ? Tier::nvme : Tier::ram;
  const uint64_t bytes = footprint(tier, length);
  uint64_t room = from_nvme ? space.nvme : space.ram;
  TierChoice choice;
  for (auto victim = from_nvme ? nvme : ram; room < bytes; victim = farthest(tier, own_distance)) {
    if (!victim || victim->distance <= own_distance) break;
    resident_[victim->chunk.index()] &= static_cast<uint8_t>(~bit(tier));
    choice.evict.push_back(victim->chunk);
    room += footprint(tier, catalog_.range(victim->chunk).length);
  }
  if (room >= bytes) {
    choice.tier = tier;
    return choice;
  }
  put_back(choice.evict, tier);  // not enough: they stay
  return {};
}

void NextUsePolicy::put_back(const std::vector<ChunkId>& chunks, Tier tier) const {
  for (const ChunkId chunk : chunks) {
    resident_[chunk.index()] |= bit(tier);
    raise_cursors(chunk, tier);
  }
}

// Where there is room for it without dropping anything. What plans have no further use for may only take
// memory that is free, not wear out NVMe, nor be brought in as a whole for a part.
Tier NextUsePolicy::free_tier(ChunkId chunk, uint64_t length, const TierSpace& space, bool worth) const {
  const Tier free = FirstTouchPolicy::tier(length, space);
  if (worth || !covered(chunk)) return free;
  const bool elsewhere = (resident_[chunk.index()] & kInPageCache) != 0;
  return free == Tier::ram && !elsewhere && !shared(chunk) ? Tier::ram : Tier::none;
}

TierChoice NextUsePolicy::choose_tier(ChunkId chunk, uint64_t length, const TierSpace& space,
                                      const Use& served) {
  MutexLock lock(mutex_);
  const auto distance = rank(chunk, served);
  const Tier free = free_tier(chunk, length, space, distance.has_value());
  if (free != Tier::none || !distance) return {free, {}};
  return replace(*distance, length, space);
}

bool NextUsePolicy::would_keep(ChunkId chunk, uint64_t length, const TierSpace& space,
                               const Use& served) const {
  MutexLock lock(mutex_);
  const auto own = rank(chunk, served);
  if (free_tier(chunk, length, space, own.has_value()) != Tier::none) return true;
  if (!own) return false;
  if (*own == kBeforeNever) {  // a whole chunk is fetched for a part of it on the strength of this
    const TierChoice choice = replace(*own, length, space);
    put_back(choice.evict, choice.tier);
    return choice.tier != Tier::none;
  }
  const auto ram = farthest(Tier::ram, *own);
  const auto nvme = space.nvme_writable ? farthest(Tier::nvme, *own) : std::nullopt;
  return (ram && ram->distance > *own) || (nvme && nvme->distance > *own);
}

std::vector<ChunkId> NextUsePolicy::list_residents(Tier tier) const {
  std::vector<ChunkId> list;
  for (uint32_t c = 0; c < resident_.size(); ++c) {
    if ((resident_[c] & bit(tier)) != 0) list.push_back(ChunkId(c));
  }
  return list;
}

bool NextUsePolicy::resident(ChunkId chunk, Tier tier) const {
  MutexLock lock(mutex_);
  return (resident_[chunk.index()] & bit(tier)) != 0;
}

std::vector<ChunkId> NextUsePolicy::residents(Tier tier) const {
  MutexLock lock(mutex_);
  return list_residents(tier);
}

void NextUsePolicy::kept(ChunkId chunk, Tier tier) {
  MutexLock lock(mutex_);
  resident_[chunk.index()] |= bit(tier);
  raise_cursors(chunk, tier);
}

void NextUsePolicy::dropped(ChunkId chunk, Tier tier) {
  MutexLock lock(mutex_);
  resident_[chunk.index()] &= static_cast<uint8_t>(~bit(tier));
}

}  // namespace clairfs
