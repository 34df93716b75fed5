// This mount as one node of a job: everything that a single mount does without. Part of the composition root.
//
// The order of calls is that of the start: connect() after the mount point was made and before rings and
// other threads; catalog(); make_source() and policy() for the cache; make_placement() before the plans;
// serve(), and follow() when everything stands. The end is the reverse: leave(), then the cache's stop(),
// then stop().
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cache/base/clock.h"
#include "cache/base/log.h"
#include "cache/base/metrics.h"
#include "cache/base/mutex.h"
#include "cache/catalog_file.h"
#include "mount-helper/mount_options.h"
#include "net/job.h"
#include "net/mpi_transport.h"
#include "plan/job_placement.h"
#include "plan/placed_policy.h"
#include "plan/plan_manager.h"
#include "plan/warm_up.h"

namespace clairfs {

/// Thread-safe where not part of the start or the end. The parts outlive it; it outlives the cache.
class JobNode {
 public:
  struct Parts {
    const MpiPlace& place;
    const MountOptions& options;
    const Clock& clock;
    Metrics& metrics;
    Logger& log;
    std::function<void(const std::string& why)> refused;  ///< this node has to end; from any thread
    std::function<void()> abandon;                        ///< MPI ends the process: undo the mount point
    std::function<void()> waiting;                        ///< see MpiOptions
  };
  /// Waits for all nodes. Errors: those of MpiTransport::connect().
  static Result<std::unique_ptr<JobNode>> connect(Parts parts);
  ~JobNode();

  /// Rank 0's catalog: `load` is called there, and the others are sent the result, which they compare with
  /// their own source. Errors: those of `load`; ESTALE when this node's source differs; those of
  /// Job::await_catalog().
  using Load = std::function<Result<LoadedCatalog>(const ScanProgress& progress)>;
  Result<LoadedCatalog> catalog(const Load& load, const std::function<void(const std::string&)>& progress);

  ChunkSource& make_source(const Catalog& catalog, ChunkSource& pfs);
  TierPolicy& policy(NextUsePolicy& single);
  void make_placement(ChunkCache& cache);
  /// Answers the others from now on; waits until all have said what they can keep.
  void serve(ChunkCache& cache);
  /// Plans of all nodes from now on; `announce` of PlanManager::Parts is announce().
  void follow(PlanManager& plans);
  void announce(const PlanNews& news);
  JobPlacement& job_placement() { return *job_placement_; }
  std::shared_ptr<const Placement> placement() const;

  /// For `.clairfs/peers`, for the job's part of `status`, and for stats.json (a JSON object's text).
  std::string peers_text() const { return job_->peers_text(); }
  std::string status_text(uint64_t least_pfs_bytes) const;
  std::string json(uint64_t least_pfs_bytes) const;

  void leave(const std::string& reason);
  void stop();

 private:
  explicit JobNode(Parts parts) : parts_(std::move(parts)) {}
  void await_hellos() const;
  std::vector<NodeCapacity> capacities() const;
  void nodes_changed();
  void place(const std::shared_ptr<const Placement>& placement);

  const Parts parts_;
  std::unique_ptr<MpiTransport> transport_;
  std::unique_ptr<Job> job_;
  const Catalog* catalog_ = nullptr;
  std::unique_ptr<PlacedPolicy> policy_;
  std::unique_ptr<JobPlacement> job_placement_;
  std::unique_ptr<WarmUp> warm_up_;

  mutable Mutex mutex_;  // leaf
  std::shared_ptr<const Placement> placement_ GUARDED_BY(mutex_);
  bool placing_ GUARDED_BY(mutex_) = false;  // job_placement_ is there
};

}  // namespace clairfs
