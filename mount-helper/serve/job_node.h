// This mount as one node of a job: everything that a single mount does without. Part of the composition root.
//
// It is made in three steps: JobNode joins the job, after the mount point was made and before rings and other
// threads; SharedSource is what its cache reads from; NodePlacement needs the cache.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "cache/base/log.h"
#include "cache/base/mutex.h"
#include "cache/base/types.h"
#include "cache/catalog/file.h"
#include "cache/tasks/step_thread.h"
#include "mount-helper/serve/mount_point.h"
#include "net/job.h"
#include "net/transport/transport.h"
#include "plan/plan_manager.h"
#include "plan/retention/home_prefill.h"
#include "plan/retention/placement_manager.h"
#include "plan/retention/placement_policy.h"

namespace clairfs {

/// The first phase of a mount in a job: a node that has met the others. It outlives the cache.
class JobNode {
 public:
  /// Waits for all nodes. The base outlives it. Errors: those of Meeting::gather() and
  /// MpiTransport::connect().
  static Result<std::unique_ptr<JobNode>> connect(MountBase& base);
  ~JobNode() { stop(); }

  /// Node 0's catalog: `load` is called there, and the others are sent the result, which they compare with
  /// their own source. Errors: those of `load`; ESTALE when this node's source differs; those of
  /// Job::await_catalog().
  using Load = std::function<Result<LoadedCatalog>(const ScanProgress& progress)>;
  Result<LoadedCatalog> catalog(const Load& load);

  Job& job() { return job_; }
  std::string network_text() const { return transport_->network_text(); }
  /// Stops the mount point and says goodbye: Job::leave(). Later calls do nothing.
  void leave();
  /// leave(), and the job's threads end: once the cache is at rest and before it is destroyed.
  void stop();

 private:
  JobNode(MountBase& base, std::unique_ptr<Transport> transport);

  MountBase& base_;
  const std::unique_ptr<Transport> transport_;
  Job job_;
  bool left_ = false;
};

/// Of a node that cannot mount: waits for the other nodes, at most --job-timeout, and tells them `why`, so
/// that they neither wait for it nor wonder. The process is to end by _exit() then (MpiTransport). REQUIRES:
/// it is a node of several, serves nothing, and has no thread that uses the environment.
void decline_job(const MountOptions& options, const JobPlace& place, const std::string& why, Logger& log);

/// The source and policy that a node of a job uses in place of a single node's.
struct SharedSource {
  /// All outlive it.
  SharedSource(JobNode& job_node, const Catalog& catalog, ChunkSource& pfs, NextUsePolicy& single)
      : node(job_node), source(node.job().make_source(catalog, pfs)), policy(catalog, single) {}
  ~SharedSource() { node.stop(); }  // the job uses `pfs` until then

  /// For `.clairfs/peers`. Thread-safe.
  std::string peers_text() const;

  JobNode& node;
  RoutedSource source;
  PlacementPolicy policy;
};

/// Where the job's nodes keep the chunks of the plans in force, and what this node does for it: its cache's
/// policy, its source and its prefill are told of each placement. Thread-safe but for serve() and stop().
class NodePlacement {
 public:
  /// All outlive it.
  NodePlacement(SharedSource& shared, const Catalog& catalog, ChunkCache& cache, const MountBase& base);

  PlacementManager& placement_manager() { return placement_manager_; }
  /// Of each node, as it last said.
  std::vector<NodeStock> stocks() const;
  /// Null without a plan.
  std::shared_ptr<const PlacementMap> current() const;

  /// Answers the others from now on; waits until all have said what they can keep; hands their plans to
  /// `plans` then, and `indexes` to the others. JobNode::stop() comes before any of them is destroyed.
  void serve(const IndexStore& indexes, PlanManager& plans);
  /// Tells the others of a plan: PlanManager::Deps::announce.
  uint64_t announce(const PlanChange& change) const;

  /// For the job's part of `status`, and for stats.json (a JSON object's text).
  std::string status_text(uint64_t least_pfs_bytes) const;
  std::string json(uint64_t least_pfs_bytes) const;

  /// Ends the prefill.
  void stop() { home_prefill_thread_.stop(); }

 private:
  void await_hellos() const;
  std::vector<NodeCapacity> capacities() const;
  void nodes_changed();
  void apply_placement(const std::shared_ptr<const PlacementMap>& placement);

  SharedSource& shared_;
  Job& job_;
  const Catalog& catalog_;
  ChunkCache& cache_;
  Logger& log_;
  PeerServer server_;
  HomePrefill home_prefill_;
  StepThread home_prefill_thread_;
  PlacementManager placement_manager_;

  mutable Mutex mutex_;  // leaf
  std::shared_ptr<const PlacementMap> placement_ GUARDED_BY(mutex_);
};

}  // namespace clairfs
