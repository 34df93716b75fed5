// The part of a plan's future that is known on this node: the epochs around the reader, laid end to end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "plan/formats/samples/sample_index.h"
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
  /// Hardly any sample comes twice: a shuffle, a part of one or one that is padded, not with replacement.
  bool uses_once = false;
  uint64_t base = 0;  ///< absolute position of its first sample

  uint64_t length() const { return sequence->length(); }
  uint64_t end() const { return base + length(); }
  Epoch epoch() const { return sequence->epoch(); }
  uint64_t memory_bytes() const;
};

/// Consecutive epochs, oldest first. A value; the epochs are shared. Absolute positions count on from epoch
/// to epoch, so that "later" is a larger number.
class Timeline {
 public:
  Timeline() = default;
  explicit Timeline(std::shared_ptr<const SampleIndex> index) : index_(std::move(index)) {}

  /// Adds an epoch at the end. REQUIRES: it follows last() and its base is end(), unless this is empty.
  void append(std::shared_ptr<const PlannedEpoch> epoch) { epochs_.push_back(std::move(epoch)); }
  /// Drops the oldest epoch. Positions stay what they are.
  void drop_first() { epochs_.erase(epochs_.begin()); }
  void set_complete(bool complete) { complete_ = complete; }

  bool empty() const { return epochs_.empty(); }
  /// Whether the plan ends with the last epoch.
  bool complete() const { return complete_; }
  // These REQUIRE: not empty.
  const SampleIndex& index() const { return *index_; }
  uint64_t begin() const { return epochs_.front()->base; }
  uint64_t end() const { return epochs_.back()->end(); }
  Epoch first() const { return epochs_.front()->epoch(); }
  Epoch last() const { return epochs_.back()->epoch(); }
  /// Positions of the first and of the last epoch. Each epoch begins at its start.
  uint64_t first_length() const { return epochs_.front()->length(); }
  uint64_t last_length() const { return epochs_.back()->length(); }
  /// REQUIRES: first() <= number <= last().
  const PlannedEpoch& epoch(Epoch number) const { return *epochs_[number.value - first().value]; }
  const std::vector<std::shared_ptr<const PlannedEpoch>>& epochs() const { return epochs_; }

  uint64_t memory_bytes() const;
  /// Whether a reader whose next position is this one is in the timeline, or at its end.
  bool covers(uint64_t position) const { return !empty() && begin() <= position && position <= end(); }
  /// Whether there is a sample at `position`.
  bool holds(uint64_t position) const { return epoch_at(position) != nullptr; }
  /// The end of the epoch that has `position`. REQUIRES: holds(position).
  uint64_t epoch_end(uint64_t position) const { return epoch_at(position)->end(); }
  /// REQUIRES: holds(position).
  uint32_t sample_at(uint64_t position) const;
  /// Where `position` is, for people. REQUIRES: covers(position).
  PlanPosition position_of(uint64_t position) const;
  /// Whether the sample comes in [from, to).
  bool uses_within(uint32_t sample, uint64_t from, uint64_t to) const;
  /// The first position at or after `from` that touches `chunk`; nothing if there is none in the timeline.
  std::optional<uint64_t> next_use(ChunkId chunk, uint64_t from) const;

  struct UseCount {
    size_t to_come = 0;   ///< at or after the position that was asked for
    size_t an_epoch = 0;  ///< in the epoch that has the most
  };
  UseCount count_uses(ChunkId chunk, uint64_t from) const;

  /// Whether both have the same epochs: the objects, not their contents.
  bool operator==(const Timeline&) const = default;

 private:
  const PlannedEpoch* epoch_at(uint64_t position) const;

  std::shared_ptr<const SampleIndex> index_;
  std::vector<std::shared_ptr<const PlannedEpoch>> epochs_;
  bool complete_ = false;
};

}  // namespace clairfs
