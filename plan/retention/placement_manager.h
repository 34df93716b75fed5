// The placement in force in a job of several nodes: follows the plans and which nodes live.
//
// Every node computes it for itself, from what is the same on all: the plans' texts, the catalog, the
// capacities. It looks at the first epochs of each plan, wherever the reader is, so that nodes that are not
// equally far agree. A node that died keeps its chunks until this node's reader begins its next epoch, so
// that nothing is moved about because of a short absence; one that returns has its own again then.
//
// A placement takes memory in the order of chunks times nodes. A node without that much goes on without a
// placement, as a job without a plan does: it keeps what it reads, and serves those that take it for a home.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "cache/base/log.h"
#include "cache/base/mutex.h"
#include "cache/catalog/catalog.h"
#include "plan/placement/placement_map.h"
#include "plan/run/plan_run.h"

namespace clairfs {

/// Thread-safe.
class PlacementManager {
 public:
  using Plans = std::vector<std::shared_ptr<PlanRun>>;
  /// Told of each new placement; null when no plan is in force, or memory lacks for a placement.
  using Changed = std::function<void(const std::shared_ptr<const PlacementMap>&)>;

  /// `capacities` are asked for by each set_plans(): by rank, and the same number each time.
  using Capacities = std::function<std::vector<NodeCapacity>()>;
  PlacementManager(const Catalog& catalog, Capacities capacities, PlacementRule rule, Changed changed,
                   Logger& log)
      : catalog_(catalog),
        capacities_(std::move(capacities)),
        rule_(rule),
        changed_(std::move(changed)),
        log_(log) {}

  /// Makes a new placement, or none if memory lacks, which is logged. Takes time in the order of
  /// kPlacementEpochs epochs of all nodes.
  void set_plans(const Plans& plans);
  /// This node's reader has begun another epoch: the time to give the chunks of dead nodes new homes. If
  /// memory lacks for that, the placement in force stays, and the next epoch is the time.
  void begin_epoch();
  /// Bytes of the plans' chunks that no node keeps, so that every epoch reads them from the PFS.
  uint64_t homeless_bytes() const { return homeless_bytes_.load(); }
  /// Which nodes do not answer, by rank; takes effect with the next epoch.
  void set_dead(const std::vector<bool>& dead);

 private:
  std::shared_ptr<const PlacementMap> place(const Plans& plans,
                                            const std::vector<NodeCapacity>& capacities) const;
  std::vector<bool> dead() const REQUIRES(work_mutex_);
  bool publish_without(const std::vector<bool>& dead) REQUIRES(work_mutex_);
  void publish(const std::shared_ptr<const PlacementMap>& placement);

  const Catalog& catalog_;
  const Capacities capacities_;
  const PlacementRule rule_;
  const Changed changed_;
  Logger& log_;

  Mutex work_mutex_;  // one placement at a time; taken before mutex_, held while `changed` is told
  std::shared_ptr<const PlacementMap> whole_ GUARDED_BY(work_mutex_);  // as if all nodes lived
  std::vector<bool> published_ GUARDED_BY(work_mutex_);                // whose chunks have new homes

  std::atomic<uint64_t> homeless_bytes_{0};
  mutable Mutex mutex_;  // leaf
  std::vector<bool> dead_ GUARDED_BY(mutex_);
};

}  // namespace clairfs
