#include "plan/retention/placement_manager.h"

#include <algorithm>
#include <new>
#include <utility>

#include "cache/base/plural.h"
#include "cache/base/units.h"

namespace clairfs {

void PlacementManager::set_plans(const Plans& plans) {
  MutexLock one_at_a_time(work_mutex_);
  const std::vector<NodeCapacity> capacities = capacities_();
  whole_ = plans.empty() ? nullptr : place(plans, capacities);
  published_.assign(capacities.size(), false);
  const std::vector<bool> dead = this->dead();
  if (dead == published_ || !publish_without(dead)) publish(whole_);
}

// Null if memory lacks.
std::shared_ptr<const PlacementMap> PlacementManager::place(const Plans& plans,
                                                            const std::vector<NodeCapacity>& capacities) const
    try {
  JobUses uses(catalog_, static_cast<uint32_t>(capacities.size()));
  for (const auto& plan : plans) {
    if (const Status added = plan->add_uses(uses, kPlacementEpochs); !added) {
      log_.warn("plan {} has no part in the placement: {}", plan->name(), added.error().message);
    }
  }
  return std::make_shared<const PlacementMap>(
      PlacementMap::make(catalog_, std::move(uses), capacities, rule_));
} catch (const std::bad_alloc&) {
  log_.warn(
      "placement: not enough memory for {} on {} nodes, which takes more than {}; this node goes on "
      "without one and reads from the source what it does not keep",
      pluralize(catalog_.chunk_count(), "chunk", "chunks"), capacities.size(),
      format_size(PlacementTable::memory_bytes(catalog_.chunk_count(), capacities.size())));
  return nullptr;
}

void PlacementManager::begin_epoch() {
  MutexLock one_at_a_time(work_mutex_);
  const std::vector<bool> dead = this->dead();
  if (dead != published_) publish_without(dead);
}

// Of all nodes, though nothing was heard yet.
std::vector<bool> PlacementManager::dead() const {
  MutexLock lock(mutex_);
  std::vector<bool> dead = dead_;
  dead.resize(published_.size());
  return dead;
}

void PlacementManager::set_dead(const std::vector<bool>& dead) {
  MutexLock lock(mutex_);
  dead_ = dead;
}

// False if memory lacks.
bool PlacementManager::publish_without(const std::vector<bool>& dead) try {
  const bool all_live = std::find(dead.begin(), dead.end(), true) == dead.end();
  publish(whole_ == nullptr || all_live ? whole_
                                        : std::make_shared<const PlacementMap>(whole_->without(dead)));
  published_ = dead;
  return true;
} catch (const std::bad_alloc&) {
  log_.warn(
      "placement: not enough memory to give the chunks of dead nodes new homes: until the next epoch "
      "they are read from the source each time");
  return false;
}

void PlacementManager::publish(const std::shared_ptr<const PlacementMap>& placement) {
  if (placement) {
    log_.info("placement: {} of the plans' chunks have no home and are read from the source each time",
              format_size(placement->homeless_bytes()));
  }
  homeless_bytes_ = placement ? placement->homeless_bytes() : 0;
  changed_(placement);
}

}  // namespace clairfs
