// NextUsePolicy knows the future: what is used soonest stays, what is used last makes room.
//
// This is Belady's MIN (L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", IBM
// Systems Journal 5(2), 1966, section "MIN") by whole epochs, with RAM and NVMe as one cache: a chunk that is
// fetched takes free space if there is any, else the place of the resident chunk whose next use is in the
// latest epoch. A chunk without a further use is passed on and forgotten, unless there is free RAM: nobody
// knows what comes after a plan, and often it is another job on the same files. Over E shuffled epochs the
// source is read at most S + (E-1)(S-D) bytes.
//
// Among chunks whose next uses are in one epoch, which uses each once, it makes no difference for the bytes
// which D bytes stay. For the time it does: with MIN's choice, those used soonest, the first D bytes of each
// epoch would need nothing of the source and the rest all. So the first ones of an even spread over the
// dataset stay (SpreadOrder): then each part of an epoch needs the same part of its bytes, the source is busy
// all the time, and once D bytes are there nothing is replaced any more, so NVMe is hardly written. Where
// samples come several times an epoch (replacement), MIN's own choice reads up to a tenth less, and is taken.
//
// A chunk that several samples share (records in large files) is used again and again in an epoch, each time
// for a part. By next use such chunks would replace each other all the time, and bring in a whole chunk for
// each record. So they have a rule of their own, with the same bound: what comes first stays as long as it
// has a use, and of the rest no more than the records is read (ChunkCache::acquire_range()). A shared chunk
// that is brought in pays for itself in a whole epoch: it takes only free space or the place of what has no
// further use, and only if at least an epoch's uses of it are still to come.
//
// "Now" is not where the reader is but where staging is: what lies before it has been handed to the kernel's
// page cache and needs its chunk only for its next use after that. So does the use that a fetch is for.
//
// How the farthest is found without keeping a heap: an epoch and the spread are lists already. A cursor for
// each plan, tier and epoch walks down the list over chunks that are not resident or have their next use in
// another epoch; it is pushed up again when a chunk becomes resident or has its next use there. Each step is
// paid for by one slot of a list, so the cost is constant a sample. would_keep() moves cursors and looks
// through the same lists, which is why they are mutable: it leaves the same chunks resident.
//
// With several plans a chunk's distance is the least over the plans, in epochs of each (the plans' readers
// need not be equally fast, but each reads its epoch once). Without a plan, and for chunks that no plan
// knows, the rule is first touch; such chunks are the first to make room.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "cache/base/mutex.h"
#include "cache/catalog/catalog.h"
#include "cache/chunks/tier_policy.h"
#include "plan/retention/spread_order.h"
#include "plan/sequence/shared_chunks.h"
#include "plan/sequence/timeline.h"

namespace clairfs {

/// Thread-safe: one lock, held for microseconds. Memory: one byte a chunk, four for each that is resident in
/// vain, and SharedChunks for each sample index.
class NextUsePolicy final : public TierPolicy {
 public:
  explicit NextUsePolicy(const Catalog& catalog);

  /// Adds a reader's order (PlanReader::order()) or replaces its timeline; `staged` is the absolute position
  /// from which on samples still have to be staged. The first time for a sample index takes time in the order
  /// of its samples, without the lock.
  void set_timeline(OrderId order, Timeline timeline, uint64_t staged);
  /// The samples before `staged` have been handed on. Also goes back, after a reader did.
  void set_staged(OrderId order, uint64_t staged);
  void remove(OrderId order);
  /// The samples of the chunk stay in the kernel's page cache, or no longer: no plan needs it from a tier
  /// meanwhile. Without effect for chunks that samples share.
  void set_in_page_cache(ChunkId chunk, bool there);

  TierChoice choose_tier(ChunkId chunk, uint64_t length, const TierSpace& space, const Use& served) override;
  bool would_keep(ChunkId chunk, uint64_t length, const TierSpace& space, const Use& served) const override;
  void kept(ChunkId chunk, Tier tier) override;
  void dropped(ChunkId chunk, Tier tier) override;

  /// Whether the chunk is in the tier, according to kept() and dropped().
  bool resident(ChunkId chunk, Tier tier) const;
  std::vector<ChunkId> residents(Tier tier) const;

 private:
  struct Plan {
    Timeline timeline;
    std::shared_ptr<const SharedChunks> shared;  // of the timeline's index; null: none
    uint64_t staged = 0;
    // By tier and by epoch of the timeline: no candidate at or above this slot (slot_of()).
    std::array<std::vector<uint64_t>, kTierValues> cursors;
  };
  struct Candidate {
    ChunkId chunk;
    Tier tier = Tier::none;
    double distance = 0;  // whole epochs until its next use, and its place among those of that epoch
  };

  std::shared_ptr<const SharedChunks> shared_chunks(const Timeline& timeline) const EXCLUDES(mutex_);
  bool shared(ChunkId chunk) const REQUIRES(mutex_);
  bool has_an_epochs_uses(ChunkId chunk) const REQUIRES(mutex_);
  uint64_t slots(const PlannedEpoch& epoch) const;
  uint64_t slot_of(const PlannedEpoch& epoch, ChunkId chunk, uint64_t position) const;
  double distance(const Plan& plan, ChunkId chunk, uint64_t position) const;
  std::optional<double> distance_of(ChunkId chunk, const Use& served = {}) const REQUIRES(mutex_);
  std::optional<double> rank(ChunkId chunk, const Use& served) const REQUIRES(mutex_);
  bool covered(ChunkId chunk) const REQUIRES(mutex_);
  Tier free_tier(ChunkId chunk, uint64_t length, const TierSpace& space, bool worth) const REQUIRES(mutex_);
  void raise_cursors(ChunkId chunk, Tier tier) const REQUIRES(mutex_);
  void reset_cursors(Plan& plan) const;
  void look_anew() REQUIRES(mutex_);
  void list_useless(ChunkId chunk, Tier tier) const REQUIRES(mutex_);
  std::vector<ChunkId> list_residents(Tier tier) const REQUIRES(mutex_);
  std::optional<Candidate> useless(Tier tier) const REQUIRES(mutex_);
  std::optional<Candidate> candidate_at(const Plan& plan, const PlannedEpoch& epoch, uint64_t slot,
                                        Tier tier) const REQUIRES(mutex_);
  std::optional<Candidate> farthest(Plan& plan, Tier tier) const REQUIRES(mutex_);
  std::optional<Candidate> farthest(Tier tier, double own_distance) const REQUIRES(mutex_);
  TierChoice replace(double own_distance, uint64_t length, const TierSpace& space) const REQUIRES(mutex_);
  void put_back(const std::vector<ChunkId>& chunks, Tier tier) const REQUIRES(mutex_);

  const Catalog& catalog_;
  const SpreadOrder spread_;

  mutable Mutex mutex_;                                       // leaf
  mutable std::map<OrderId, Plan> plans_ GUARDED_BY(mutex_);  // looking for a candidate moves cursors
  // By chunk: 1 << Tier where it is resident, 16 << Tier where useless_ lists it; 1 << Tier::none if it is in
  // the page cache.
  mutable std::vector<uint8_t> resident_ GUARDED_BY(mutex_);
  // Resident chunks that had no further use when last looked at, once each; each is looked at again before it
  // is dropped.
  mutable std::array<std::vector<ChunkId>, kTierValues> useless_ GUARDED_BY(mutex_);
};

}  // namespace clairfs
