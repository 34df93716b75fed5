// The plans of this node: those that are in force, and those that are being made. What becomes of a plan, and
// why, is said by others; here it is put on the list, placed and staged, and taken off again.
//
// Locks. `submit_mutex` is held while plans are changed, by who changes them and over all steps of it; it is
// taken before any other lock of plans, and never by a thread that answers FUSE requests. The table's own is
// a leaf: who asks for a list gets it as it is then, without waiting for a change.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/mutex.h"
#include "cache/base/result.h"
#include "plan/plan_deps.h"
#include "plan/run/plan_making.h"
#include "plan/run/plan_run.h"

namespace clairfs {

/// Thread-safe.
class PlanTable {
 public:
  using Runs = std::map<std::string, std::shared_ptr<PlanRun>>;
  using Makings = std::map<std::string, std::shared_ptr<PlanMaking>>;
  /// What is asked and told with submit_mutex held.
  struct Calls {
    std::function<bool(const PlanRun&)> is_placed;  ///< whether it has a part in the placement
    std::function<void()> changed;                  ///< the plans in force are others
  };

  /// `deps` outlive it.
  PlanTable(const PlanDeps& deps, Calls calls) : deps_(deps), calls_(std::move(calls)) {}
  /// From now on nothing is made. Returns all that was, also what was given up, whose threads may still run.
  std::vector<std::shared_ptr<PlanMaking>> stop();

  /// One change at a time.
  Mutex submit_mutex;

  /// The plans in force, by name. To be kept in a variable: a range-for over *runs() would not keep it alive.
  std::shared_ptr<const Runs> runs() const;
  /// Null if it is not in force; so the next.
  std::shared_ptr<PlanRun> run(const std::string& name) const;
  /// What is being made under the name, or could not be made or go on, until it is cancelled or replaced.
  std::shared_ptr<PlanMaking> making(const std::string& name) const;
  Makings makings() const;
  bool any() const { return count_.load() > 0; }
  /// Waits for all that is being made, for an index no longer than `patience`. False: nothing was.
  bool await_makings(Duration patience);

  /// Begins to make a plan; what was being made under its name is given up. `place`: of the plan's ranks.
  /// `finish` locks submit_mutex itself. Null if the table has stopped.
  std::shared_ptr<PlanMaking> begin(const PlanSpec& spec, NodeId origin, NodePlace place,
                                    PlanMaking::Finish finish) REQUIRES(submit_mutex);
  /// For `finish`. Errors: ECANCELED if it was given up.
  Status check_listed(const PlanMaking& making) const REQUIRES(submit_mutex);
  /// Gives up what is being made: it is not listed any more, and goes on until it notices. False: nothing is.
  bool retire(const std::string& name);
  /// Lists a plan that was in force and cannot go on as one that could not be made.
  void list_failed(const PlanSpec& spec, NodeId origin, const Error& reason) REQUIRES(submit_mutex);

  /// Puts a plan in force in two steps, in place of the one of its name: from the first one on accesses are
  /// offered to it.
  void list(const std::shared_ptr<PlanRun>& made) REQUIRES(submit_mutex);
  void stage(const std::shared_ptr<PlanRun>& made) REQUIRES(submit_mutex);
  /// The plan is in force no more. drop() also places what is left anew, and says that it is cancelled.
  void unlist(const std::string& name) REQUIRES(submit_mutex);
  void drop(const std::string& name) REQUIRES(submit_mutex);
  void place_chunks() REQUIRES(submit_mutex);
  /// Tells the other nodes.
  void announce(const std::string& name, const std::string& text, bool withdrawn = false)
      REQUIRES(submit_mutex);

 private:
  void replace_runs(const std::function<void(Runs&)>& change) REQUIRES(submit_mutex);

  const PlanDeps& deps_;
  const Calls calls_;

  mutable Mutex mutex_;  // leaf
  std::shared_ptr<const Runs> runs_ GUARDED_BY(mutex_) = std::make_shared<Runs>();
  Makings makings_ GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<PlanMaking>> retired_ GUARDED_BY(mutex_);  // whose threads may still run
  bool stopped_ GUARDED_BY(mutex_) = false;
  std::atomic<size_t> count_{0};  // of runs_
};

/// ENOENT, with the advice where to look.
Error no_such_plan(const std::string& name);

}  // namespace clairfs
