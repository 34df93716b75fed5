#include "cache/chunks/transit_queue.h"

#include <algorithm>
#include <utility>

namespace clairfs {

TransitQueue::Queue& TransitQueue::queue(const Demand& demand, TransitClass transit_class) {
  return queues_[static_cast<size_t>(demand.now().kind)][static_cast<size_t>(transit_class)];
}

void TransitQueue::add(TransitClass transit_class, std::shared_ptr<const Demand> demand, Attempt attempt) {
  MutexLock lock(mutex_);
  count_.fetch_add(1);  // before the demand is read: who raises it afterwards finds a fetch to look for
  Queue& waiting = queue(*demand, transit_class);
  waiting.push_back({std::move(demand), std::move(attempt)});
}

void TransitQueue::demand_changed(const Demand& demand) {
  if (empty()) return;
  MutexLock lock(mutex_);
  for (size_t kind = static_cast<size_t>(demand.now().kind) + 1; kind < kKinds; ++kind) {
    for (size_t c = 0; c < kClasses; ++c) {
      Queue& lower = queues_[kind][c];
      const auto found = std::find_if(lower.begin(), lower.end(),
                                      [&](const Waiter& waiter) { return waiter.demand.get() == &demand; });
      if (found == lower.end()) continue;
      queue(demand, static_cast<TransitClass>(c)).push_back(std::move(*found));
      lower.erase(found);
      return;
    }
  }
}

bool TransitQueue::begin_one() {
  std::array<bool, kClasses> no_memory{};
  for (size_t i = 0; i < kKinds * kClasses; ++i) {
    const size_t c = i % kClasses;
    while (!no_memory[c]) {
      Waiter waiter;
      {
        MutexLock lock(mutex_);
        Queue& waiting = queues_[i / kClasses][c];
        if (waiting.empty()) break;
        waiter = std::move(waiting.front());
        waiting.pop_front();
      }
      const std::optional<TransitClass> lacking = waiter.attempt();
      if (!lacking) {
        count_.fetch_sub(1);
        return true;
      }
      // Not always the class that it waited for: NVMe may have lost the chunk meanwhile.
      no_memory[static_cast<size_t>(*lacking)] = true;
      MutexLock lock(mutex_);
      Queue& waiting = queue(*waiter.demand, *lacking);
      const bool first = &waiting == &queues_[i / kClasses][c];
      waiting.insert(first ? waiting.begin() : waiting.end(), std::move(waiter));
    }
  }
  return false;
}

}  // namespace clairfs
