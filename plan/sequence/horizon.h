// The part of a plan's future that is known on this node: the epochs around the reader, laid end to end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "plan/formats/sample_index.h"
#include "plan/sequence/access_sequence.h"
#include "plan/sequence/epoch_uses.h"
#include "plan/sequence/plan_position.h"
#include "plan/sequence/sequence_positions.h"

namespace clairfs {

/// One epoch, with what is derived from it. Immutable, shared.
struct PlannedEpoch {
  /// `samples`: for all epochs of a plan, or null (epoch_uses.h). `index` and `catalog` outlive it.
  static PlannedEpoch make(std::shared_ptr<const EpochSequence> sequence,
                           std::shared_ptr<const ChunkSamples> samples, const SampleIndex& index,
                           const Catalog& catalog);

  std::shared_ptr<const EpochSequence> sequence;
  std::shared_ptr<const SequencePositions> positions;
  std::shared_ptr<const EpochUses> uses;
  uint64_t base = 0;  ///< absolute position of its first sample

  uint64_t end() const { return base + sequence->length(); }
  Epoch epoch() const { return sequence->epoch(); }
  uint64_t memory_bytes() const;
};

/// Consecutive epochs, oldest first. A value; the epochs are shared. Absolute positions count on from epoch
/// to epoch, so that "later" is a larger number.
struct Horizon {
  std::shared_ptr<const SampleIndex> index;
  std::vector<std::shared_ptr<const PlannedEpoch>> epochs;
  bool complete = false;  ///< the plan ends with the last of them

  bool empty() const { return epochs.empty(); }
  uint64_t begin() const { return epochs.front()->base; }
  uint64_t end() const { return epochs.back()->end(); }
  Epoch first() const { return epochs.front()->epoch(); }
  Epoch last() const { return epochs.back()->epoch(); }
  /// Positions of the last epoch, which begins at its start.
  uint64_t last_length() const { return epochs.back()->sequence->length(); }
  /// Whether a reader whose next position is this one is in the horizon, or at its end.
  bool covers(uint64_t position) const { return !empty() && begin() <= position && position <= end(); }
  /// The epoch that holds `position`, or null.
  const PlannedEpoch* epoch_at(uint64_t position) const;
  /// REQUIRES: begin() <= position < end().
  uint32_t sample_at(uint64_t position) const;
  /// Where `position` is, for people. REQUIRES: covers(position).
  PlanPosition place(uint64_t position) const;
  /// Whether the sample comes in [from, to).
  bool uses_within(uint32_t sample, uint64_t from, uint64_t to) const;
  /// The first position at or after `from` that touches `chunk`; nothing if it is not in the horizon.
  std::optional<uint64_t> next_use(ChunkId chunk, uint64_t from) const;
};

}  // namespace clairfs
