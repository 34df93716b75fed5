// The events of a job, handed to its listeners: changes of nodes, and the plans in force.
//
// Events are delivered on a thread of their own ("job"), one after the other, and their receivers may wait.
// Of a plan each receiver hears what holds by the time that it is its turn, and every entry once: entries may
// be queued in another order than they hold.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cache/base/mutex.h"
#include "cache/tasks/task_thread.h"
#include "net/group/plan_register.h"
#include "plan/plan_manager.h"

namespace clairfs {

/// Thread-safe, but for end(). The register outlives it.
class JobEvents {
 public:
  /// A node came, became ready, went silent, died or left.
  using NodesChanged = std::function<void()>;
  /// A plan was registered or cancelled on some node.
  using PlanChanged = std::function<void(const PlanChange&)>;

  explicit JobEvents(const PlanRegister& plans) : plans_(plans) {}

  /// Delivers the changes from now on, and one at once for those that were before.
  void follow_nodes(NodesChanged changed);
  /// First those in force, then each that is registered or cancelled.
  void follow_plans(PlanChanged changed);

  /// Changes that come while others still wait for the thread are delivered with them: a follower looks at
  /// all nodes, and when a large job begins they come by the hundred.
  void nodes_changed();
  void plan_changed(const std::string& name);
  /// Something else to be done on the thread.
  void post(std::function<void()> task);
  /// Delivers nothing more; waits for the event that is being delivered. Later calls do nothing.
  void end() { thread_.end(); }

 private:
  struct PlanFollower {
    PlanChanged changed;
    std::map<std::string, wire::PlanEntry> told;  // of the thread: the last of each plan
  };

  void tell(PlanFollower& follower, const std::string& name) const;

  const PlanRegister& plans_;
  Mutex mutex_;  // leaf
  std::vector<NodesChanged> node_followers_ GUARDED_BY(mutex_);
  bool nodes_posted_ GUARDED_BY(mutex_) = false;  // and not yet delivered
  std::vector<std::shared_ptr<PlanFollower>> plan_followers_ GUARDED_BY(mutex_);
  TaskThread thread_{"job"};  // last: uses the others
};

}  // namespace clairfs
