// The index of packed files, made before a plan needs it.
#pragma once

#include <memory>
#include <string>

#include "cache/base/clock.h"
#include "cache/base/mutex.h"
#include "plan/run/plan_making.h"

namespace clairfs {

/// Thread-safe.
class IndexAhead {
 public:
  /// `clock` outlives it.
  IndexAhead(DatasetSource source, JobPlace place, const Clock& clock)
      : source_(std::move(source)), place_(place), clock_(clock) {}
  ~IndexAhead() { stop(); }
  /// Ends what is being made.
  void stop();

  /// Finds the samples of the plan, which saves their index. Does not wait: answers "indexing N %" until that
  /// is done, when the same plan asks again; then, once, with a report (index_report()). Errors: EBUSY while
  /// another plan's is being made; those of PlanRun::make().
  Result<std::string> ask(const PlanSpec& plan);

 private:
  struct Work {
    std::string report;  ///< written before the making's outcome
    std::unique_ptr<PlanMaking> making;
  };
  std::shared_ptr<Work> begin(const PlanSpec& plan) const;

  const DatasetSource source_;
  const JobPlace place_;
  const Clock& clock_;
  Mutex mutex_;  // leaf
  std::shared_ptr<Work> work_ GUARDED_BY(mutex_);
};

}  // namespace clairfs
