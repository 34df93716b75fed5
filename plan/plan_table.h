// PlanTable: the plans of this node that are in force, and those that are being made. It lists, places and
// stages a plan, and takes it off again. PlanManager and FoundPlan decide which plans, and why.
//
// Locks. The thread that changes plans holds `submit_mutex` over all steps of the change. It is taken before
// any other lock of plans, and never by a thread that answers FUSE requests. The table's own lock is a leaf:
// a thread that asks for a list gets it as it is then, without waiting for a change.
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
  /// The table makes these calls with submit_mutex held.
  struct Calls {
    std::function<bool(const PlanRun&)> is_placed;  ///< whether it has a part in the placement
    std::function<void()> changed;                  ///< the plans in force are others
  };

  /// `deps` outlive it.
  PlanTable(const PlanDeps& deps, Calls calls) : deps_(deps), calls_(std::move(calls)) {}
  /// From now on no plan is made. Returns all makings, also those that were given up and may still run.
  std::vector<std::shared_ptr<PlanMaking>> stop();

  /// One change at a time.
  Mutex submit_mutex;

  /// The plans in force, by name. To be kept in a variable: a range-for over *runs() would not keep it alive.
  std::shared_ptr<const Runs> runs() const;
  /// Null if it is not in force; so the next.
  std::shared_ptr<PlanRun> run(const std::string& name) const;
  /// The making under this name; null: none. That of a plan that could not be made, or could not go on, stays
  /// until it is cancelled or replaced.
  std::shared_ptr<PlanMaking> making(const std::string& name) const;
  Makings makings() const;
  bool any() const { return count_.load() > 0; }
  /// Waits for all plans that are being made, for the index of each no longer than `patience`. False: none
  /// was.
  bool await_makings(Duration patience);

  /// Begins to make a plan, and gives up any making under its name. `place`: of the plan's ranks.
  /// `finish` locks submit_mutex itself. `files`: as PlanMaking. Null if the table has stopped.
  std::shared_ptr<PlanMaking> begin(const PlanSpec& spec, NodeId origin, JobPlace place,
                                    PlanMaking::Finish finish, const std::string& files = "")
      REQUIRES(submit_mutex);
  /// For `finish`. Errors: ECANCELED if it was given up.
  Status check_listed(const PlanMaking& making) const REQUIRES(submit_mutex);
  /// Gives up the making under the name: it is not listed any more, and ends once its thread notices. False:
  /// there is none.
  bool retire(const std::string& name);
  /// Lists a plan that was in force and cannot go on as one that could not be made.
  void list_failed(const PlanSpec& spec, NodeId origin, const Error& reason) REQUIRES(submit_mutex);

  /// Puts a plan in force in two steps, in place of the one of its name: from the first one on accesses are
  /// offered to it.
  void list(const std::shared_ptr<PlanRun>& made) REQUIRES(submit_mutex);
  void stage(const std::shared_ptr<PlanRun>& made) REQUIRES(submit_mutex);
  /// The plan is not in force any more. drop() also places the chunks of the others anew, and logs that this
  /// one is cancelled.
  void unlist(const std::string& name) REQUIRES(submit_mutex);
  void drop(const std::string& name) REQUIRES(submit_mutex);
  void place_chunks() REQUIRES(submit_mutex);
  /// Tells the other nodes: PlanDeps::announce.
  uint64_t announce(const std::string& name, const std::string& text, bool withdrawn = false)
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
