// One plan in force on this node: its samples, its epochs as they become known, and its reader's progress.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/base/log.h"
#include "cache/base/mutex.h"
#include "plan/access_sequence.h"
#include "plan/dataset.h"
#include "plan/horizon.h"
#include "plan/job_uses.h"
#include "plan/plan_spec.h"
#include "plan/tracker.h"

namespace clairfs {

/// Which node of how many this is.
struct NodePlace {
  Rank node;
  uint32_t nodes = 1;
};

/// Thread-safe, except that prepare() is for one thread (the planner's).
class PlanRun {
 public:
  /// Resolves the plan against the dataset and makes its first epoch. Takes time in the order of the catalog
  /// and of an epoch. Errors: EINVAL naming the key and what would be right; those of reading lists.
  static Result<std::shared_ptr<PlanRun>> make(const PlanSpec& spec, const DatasetSource& source,
                                               NodePlace place);

  const PlanSpec& given() const { return given_; }        ///< as registered
  const PlanSpec& resolved() const { return resolved_; }  ///< with what was detected and filled in
  const std::string& name() const { return given_.name; }
  const SampleIndex& index() const { return *index_; }
  Tracker& tracker() { return tracker_; }
  const Tracker& tracker() const { return tracker_; }

  Horizon horizon() const;
  /// Absolute position of a place in an epoch of the horizon; nothing if the epoch is not in it.
  std::optional<uint64_t> absolute(const PlanPosition& place) const;
  /// The place of an absolute position; clamped to the horizon.
  PlanPosition place(uint64_t position) const;

  /// Brings the horizon round the reader up to date: its own epoch and the next; between them, until the
  /// reader is well in its own, the one before instead of the next, so that two are held at a time. (Short
  /// epochs: all three.) True if something changed. Errors: what making an order said (the plan cannot go
  /// on).
  Result<bool> prepare();
  /// Whether prepare() has something to do.
  bool wants_preparation() const;
  /// A node's sequence of another resolved plan over the same samples, for diagnose().
  Result<EpochSequence> sequence_of(const PlanSpec& spec, Epoch epoch, Rank node) const;
  /// Adds the uses of the plan's first `epochs` epochs by all nodes of the job. Takes time in the order of as
  /// many epochs of the whole job. Errors: what making an order said.
  Status add_uses(JobUses& uses, uint64_t epochs) const;
  /// Looks for the order that a reader really follows and tells the tracker; makes up to some tens of epochs.
  /// Returns whether its hint is news.
  bool diagnose_divergence(const std::function<bool()>& stop);

  /// Samples of the plan that a READ of these bytes may belong to; empty if it is none of the plan's files.
  std::vector<uint32_t> samples_of(FileId file, uint64_t offset, uint64_t length) const;
  /// Of all samples together.
  uint64_t dataset_bytes() const { return dataset_bytes_; }

  /// Memory of numbering, orders and derived arrays.
  uint64_t memory_bytes() const;

 private:
  PlanRun(PlanSpec given, PlanSpec resolved, DatasetSource source, std::shared_ptr<const SampleIndex> index,
          AccessSequence sequence, NodePlace place);
  /// What prepare() has to do.
  struct Wanted {
    Epoch front;             ///< the reader's epoch
    bool elsewhere = false;  ///< it is not in the horizon
    bool drop = false;       ///< epochs before `keep`
    Epoch keep;
    bool next = false;  ///< the epoch after `front`
  };
  Wanted wanted() const;
  Result<std::shared_ptr<const PlannedEpoch>> plan_epoch(Epoch epoch, uint64_t base);
  void publish(Horizon horizon);

  const PlanSpec given_;
  const PlanSpec resolved_;
  const DatasetSource source_;
  const std::shared_ptr<const SampleIndex> index_;
  const std::shared_ptr<const ChunkSamples> chunk_samples_;  ///< null where samples share chunks
  const uint64_t dataset_bytes_;
  const NodePlace place_;
  AccessSequence sequence_;  // the planner's
  Tracker tracker_;          // self-synchronised

  mutable Mutex mutex_;  // leaf
  Horizon horizon_ GUARDED_BY(mutex_);
};

}  // namespace clairfs
