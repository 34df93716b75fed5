// KnownEpochs: the epochs of a plan in which a tracker can find its reader, and what was seen of each.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "plan/sequence/plan_position.h"
#include "plan/sequence/sequence_positions.h"

namespace clairfs {

/// One epoch. Its samples have the absolute positions [begin, end()).
struct KnownEpoch {
  std::shared_ptr<const SequencePositions> order;
  int64_t begin = 0;
  std::vector<bool> seen;  ///< by position in the epoch

  const EpochSequence& sequence() const { return order->sequence(); }
  int64_t length() const { return sequence().length(); }
  int64_t end() const { return begin + length(); }
};

/// By number. Neighbours lie end to end, if the caller adds them with such positions. Not thread-safe.
class KnownEpochs {
 public:
  /// Adds an epoch whose first sample has the absolute position `begin`; without one it lies apart from all
  /// others. An epoch that is known already moves there, if a position is given. Returns by how far it moved.
  int64_t add(std::shared_ptr<const SequencePositions> order, std::optional<uint64_t> begin);
  void drop(Epoch epoch) { epochs_.erase(epoch); }

  bool empty() const { return epochs_.empty(); }
  const std::map<Epoch, KnownEpoch>& all() const { return epochs_; }
  /// Null if it is not known.
  const KnownEpoch* find(int64_t epoch) const;
  const KnownEpoch* find(Epoch epoch) const { return find(int64_t{epoch.value}); }

  /// Where an absolute position is, for a reader in `current`: in that epoch, at its end, or in the next one.
  PlanPosition position_of(Epoch current, int64_t position) const;
  /// The sample there; nothing at the end of an epoch, or if it is not known.
  std::optional<uint32_t> sample_at(PlanPosition place) const;
  /// Whether an epoch has one of the samples.
  bool have(std::span<const uint32_t> samples) const;
  /// Whether most of the samples lie between their neighbours in the numbering, in an epoch: the order, or a
  /// part of it, goes through the files.
  bool in_file_order(std::span<const uint32_t> samples) const;
  /// Where the sample is used next to `to`: epochs count first.
  std::optional<PlanPosition> nearest_use(uint32_t sample, PlanPosition to) const;

  bool seen(int64_t position) const;
  /// Positions in [from, end) of known epochs that were not seen.
  int64_t unseen(int64_t from, int64_t end) const;
  void mark_seen(PlanPosition place) { epochs_.at(place.epoch).seen[place.position] = true; }
  void forget_seen();

 private:
  std::map<Epoch, KnownEpoch> epochs_;
};

}  // namespace clairfs
