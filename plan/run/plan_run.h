// One plan in force on this node: its samples, and the readers that read them in its order.
#pragma once

#include <algorithm>
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache/base/log.h"
#include "cache/base/types.h"
#include "plan/formats/dataset.h"
#include "plan/placement/job_uses.h"
#include "plan/run/plan_reader.h"
#include "plan/sequence/access_sequence.h"
#include "plan/spec/plan_spec.h"
#include "plan/tracking/rank_trackers.h"

namespace clairfs {

/// Thread-safe, except that prepare() is for one thread (the planner's).
class PlanRun {
 public:
  /// Resolves the plan against the dataset and makes its first epoch. Takes time in the order of the catalog
  /// and of an epoch. Errors: EINVAL naming the key and what would be right; those of reading lists.
  static Result<std::shared_ptr<PlanRun>> make(const PlanSpec& spec, const DatasetSource& source,
                                               JobPlace place);

  const PlanSpec& given() const { return given_; }        ///< as registered
  const PlanSpec& resolved() const { return resolved_; }  ///< with what was detected and filled in
  const std::string& name() const { return given_.name; }
  const SampleIndex& index() const { return *index_; }
  /// The orders that are followed on this node, by rank of the node.
  const std::vector<std::shared_ptr<PlanReader>>& readers() const { return readers_; }
  PlanReader& reader(size_t rank = 0) const { return *readers_[rank]; }
  bool has(const PlanReader* reader) const {
    return std::any_of(readers_.begin(), readers_.end(),
                       [&](const auto& own) { return own.get() == reader; });
  }
  /// Whether the plan's ranks are spread over the nodes of a job, and not those of a node by itself.
  bool of_job() const { return place_.size > 1; }
  bool readers_apart() const { return readers_.size() > 1; }
  /// The job's number of the rank that reads in one of the orders that are followed by themselves.
  uint64_t training_rank(size_t reader) const {
    return place_.self.value * resolved_.ranks_per_node + reader / sequence_.readers_of_rank();
  }
  /// Which of that rank's streams it is; nothing where a rank has one order.
  std::optional<uint64_t> stream(size_t reader) const {
    const uint32_t streams = sequence_.readers_of_rank();
    return streams == 1 ? std::nullopt : std::optional<uint64_t>(reader % streams);
  }
  /// For people: "rank 3", "rank 3 stream 1".
  std::string name_of(size_t reader) const;

  /// An access of a thread to one of `samples`: as RankTrackers.
  RankTrackers::Observed observe(ThreadId thread, std::span<const uint32_t> samples, Access kind,
                                 TimePoint now) {
    return trackers_.observe(thread, samples, kind, now);
  }
  RankTrackers::Observed offer(ThreadId thread, std::span<const uint32_t> samples, Access kind,
                               TimePoint now) {
    return trackers_.offer(thread, samples, kind, now);
  }
  /// Whether any reader may come to one of the samples, as far as is known (Tracker::may_come_to()). Always
  /// in a job: a node has only a part of each order before it, and may be given another one in the next
  /// epoch.
  bool may_come_to(std::span<const uint32_t> samples) const {
    return of_job() || std::any_of(readers_.begin(), readers_.end(), [samples](const auto& reader) {
             return reader->tracker().may_come_to(samples);
           });
  }
  /// Of all readers together: what is counted is added up. Suspended if one of them is, finished when all
  /// are. The epoch is that of the furthest, the positions in it are added up.
  TrackerStatus status() const;
  /// Whether readers have left it, also after its end, and none follows it for certain. Never of records: a
  /// reader that goes through their files may be looking for its samples, and comes back.
  bool is_left() const;
  /// The same where one of the ranks was seen last: it takes the lock of its tracker alone while that is
  /// followed.
  bool is_left_by(size_t rank) const { return !reader(rank).tracker().is_followed() && is_left(); }
  /// Whether it has finished; one of the ranks was seen last. Never of records, as is_left().
  bool has_finished_by(size_t rank) const {
    return reader(rank).tracker().state() == TrackerState::finished && !of_records() &&
           status().state == TrackerState::finished;
  }
  /// Whether what is opened of its files was looked at as where there is no plan, since it is left, or was
  /// over before its readers came back. The setter returns what it was; so does the next.
  bool is_watched() const { return watched_; }
  bool set_watched(bool watched) { return watched_.exchange(watched); }
  /// Whether the plan that was found is followed instead: nothing is staged for this one.
  bool is_set_aside() const { return set_aside_; }
  bool set_aside(bool aside) { return set_aside_.exchange(aside); }
  /// How it was found, if it was; for people. Set before others know the plan.
  const std::string& how_found() const { return how_found_; }
  void set_how_found(std::string how) { how_found_ = std::move(how); }
  /// Whether it was noted that the epoch of a plan that was found is over.
  bool is_over() const { return over_; }
  bool set_over() { return over_.exchange(true); }
  /// Whether no reader has any of its last samples left that were not seen (Tracker::seen_to_the_end()).
  bool seen_to_the_end() const {
    return std::all_of(readers_.begin(), readers_.end(),
                       [](const auto& reader) { return reader->tracker().seen_to_the_end(); });
  }
  /// Samples of the node in the epoch of status(), as far as is known.
  uint64_t epoch_length() const;

  /// Brings the timelines of all readers up to date (PlanReader::prepare()). True if something changed.
  /// Errors: what making an order said (the plan cannot go on).
  Result<bool> prepare();
  /// A node's sequence of another resolved plan over the same samples, for diagnose().
  Result<EpochSequence> sequence_of(const PlanSpec& spec, Epoch epoch, NodeId node) const;
  /// Adds the uses of the plan's first `epochs` epochs by all nodes of the job. Takes time in the order of as
  /// many epochs of the whole job. Errors: what making an order said.
  Status add_uses(JobUses& uses, uint64_t epochs) const;
  /// The answer of diagnose_divergence().
  struct Diagnosed {
    std::vector<size_t> news;      ///< the readers of which the hint is news, and tells of a fault
    std::vector<PlanSpec> orders;  ///< other orders than the plan's that seem to be followed
  };
  /// Looks for the orders that readers really follow where their trackers want to know, and tells them; makes
  /// up to some tens of epochs for each. Once a plan has finished its trackers hold its first epoch, too: the
  /// job may be started again.
  Diagnosed diagnose_divergence(const std::function<bool()>& stop);
  /// Whether a tracker wants to know, maybe again.
  bool wants_diagnosis() const;
  /// Where a reader left the plan, for people.
  std::string describe(size_t rank, const Divergence& divergence) const;

  /// Samples of the plan that a READ of these bytes may belong to; empty if it is none of the plan's files.
  std::vector<uint32_t> samples_of(FileId file, uint64_t offset, uint64_t length) const;
  /// Whether its samples are parts of larger files, each to be read at its place.
  bool of_records() const { return index_->shares_files() && !index_->is_stream(); }
  /// Of all samples together.
  uint64_t dataset_bytes() const { return dataset_bytes_; }

  /// Memory of numbering, orders and derived arrays.
  uint64_t memory_bytes() const;

 private:
  PlanRun(PlanSpec given, PlanSpec resolved, DatasetSource source, std::shared_ptr<const SampleIndex> index,
          AccessSequence sequence, JobPlace place);
  Result<PlannedEpoch> plan_epoch(Epoch epoch, uint32_t rank);
  std::string other_seed(const Divergence& divergence) const;
  void diagnose_reader(size_t rank, const std::function<bool()>& stop, Diagnosed& diagnosed);
  /// A rank is looked for in that epoch, too. REQUIRES: the job has it.
  void make_known(size_t rank, Epoch epoch);

  const PlanSpec given_;
  const PlanSpec resolved_;
  const DatasetSource source_;
  const std::shared_ptr<const SampleIndex> index_;
  const std::shared_ptr<const ChunkSamples> chunk_samples_;  ///< null where samples share chunks
  const uint64_t dataset_bytes_;
  const JobPlace place_;
  AccessSequence sequence_;  // the planner's
  // The planner's: sequences of the epoch made last, by rank, until their readers come to it.
  std::vector<std::shared_ptr<const EpochSequence>> made_;
  const std::vector<std::shared_ptr<PlanReader>> readers_;
  RankTrackers trackers_;  // self-synchronised
  std::string how_found_;  // constant once the plan is in force
  std::atomic<bool> watched_{false};
  std::atomic<bool> set_aside_{false};
  std::atomic<bool> over_{false};
};

}  // namespace clairfs
