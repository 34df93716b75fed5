#include "net/group/events.h"

#include "plan/spec/plan_spec.h"

namespace clairfs {

void JobEvents::post(std::function<void()> task) {
  thread_.post([task = std::move(task)](const std::atomic<bool>& stopping) {
    if (!stopping) task();
  });
}

void JobEvents::follow_nodes(NodesChanged changed) {
  {
    MutexLock lock(mutex_);
    node_followers_.push_back(std::move(changed));
  }
  nodes_changed();
}

void JobEvents::nodes_changed() {
  {
    MutexLock lock(mutex_);
    if (std::exchange(nodes_posted_, true)) return;
  }
  post([this] {
    std::vector<NodesChanged> followers;
    {
      MutexLock lock(mutex_);
      nodes_posted_ = false;  // before they look: what changes from now on they may miss
      followers = node_followers_;
    }
    for (const NodesChanged& changed : followers) changed();
  });
}

void JobEvents::follow_plans(PlanChanged changed) {
  {
    MutexLock lock(mutex_);
    plan_followers_.push_back(std::make_shared<PlanFollower>(PlanFollower{std::move(changed), {}}));
  }
  for (const wire::PlanEntry& entry : plans_.entries()) {
    if (!entry.cancelled) plan_changed(entry.name);
  }
}

void JobEvents::plan_changed(const std::string& name) {
  post([this, name] {
    std::vector<std::shared_ptr<PlanFollower>> followers;
    {
      MutexLock lock(mutex_);
      followers = plan_followers_;
    }
    for (const auto& follower : followers) tell(*follower, name);
  });
}

void JobEvents::tell(PlanFollower& follower, const std::string& name) const {
  const auto entry = plans_.entry(name);
  if (!entry) return;
  if (std::exchange(follower.told[name], *entry) == *entry) return;
  // Only the plan that was found is withdrawn, with its text; else the text of a cancelled plan says nothing.
  const bool withdrawn = entry->cancelled && name == kFoundPlan && !entry->text.empty();
  follower.changed({entry->name, entry->cancelled && !withdrawn ? "" : entry->text, entry->origin, withdrawn,
                    entry->stamp});
}

}  // namespace clairfs
