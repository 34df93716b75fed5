#include "plan/retention/placement_manager.h"

#include <algorithm>
#include <utility>

#include "cache/base/units.h"

namespace clairfs {

void PlacementManager::set_plans(const Plans& plans) {
  MutexLock one_at_a_time(work_mutex_);
  const std::vector<NodeCapacity> capacities = capacities_();
  JobUses uses(catalog_, static_cast<uint32_t>(capacities.size()));
  for (const auto& plan : plans) {
    if (const Status added = plan->add_uses(uses, kPlacementEpochs); !added) {
      log_.warn("plan {} has no part in the placement: {}", plan->name(), added.error().message);
    }
  }
  whole_ = plans.empty() ? nullptr
                         : std::make_shared<const PlacementMap>(
                               PlacementMap::make(catalog_, std::move(uses), capacities, rule_));
  std::vector<bool> dead = this->dead();
  dead.resize(capacities.size());  // empty as long as nothing was heard
  publish(std::move(dead));
}

void PlacementManager::begin_epoch() {
  MutexLock one_at_a_time(work_mutex_);
  std::vector<bool> dead = this->dead();
  dead.resize(published_.size());
  if (dead != published_) publish(std::move(dead));
}

std::vector<bool> PlacementManager::dead() const {
  MutexLock lock(mutex_);
  return dead_;
}

void PlacementManager::set_dead(const std::vector<bool>& dead) {
  MutexLock lock(mutex_);
  dead_ = dead;
}

void PlacementManager::publish(std::vector<bool> dead) {
  published_ = std::move(dead);
  const bool all_live = std::find(published_.begin(), published_.end(), true) == published_.end();
  auto placement = whole_ == nullptr || all_live
                       ? whole_
                       : std::make_shared<const PlacementMap>(whole_->without(published_));
  if (placement) {
    log_.info("placement: {} of the plans' chunks have no home and are read from the source each time",
              format_size(placement->homeless_bytes()));
  }
  homeless_bytes_ = placement ? placement->homeless_bytes() : 0;
  changed_(placement);
}

}  // namespace clairfs
