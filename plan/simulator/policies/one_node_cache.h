// The cache of a job on one node, as the daemon runs it: what stays is decided read by read, by next use
// (plan/retention/next_use_policy.h), not once for the whole job.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>

#include "cache/base/result.h"
#include "plan/retention/next_use_policy.h"
#include "plan/simulator/model/dataset.h"
#include "plan/simulator/model/job_order.h"
#include "plan/simulator/policies/holdings.h"
#include "plan/simulator/policies/strategy.h"

namespace clairfs {

/// Keeps the holdings of worker 0 as the daemon's policy says. About 60 bytes a sample beside the dataset.
/// One thread at a time.
class OneNodeCache {
 public:
  /// `space`: bytes of the tiers.
  OneNodeCache(std::unique_ptr<const ScenarioDataset> dataset, JobOrder job, TierSpace space);

  /// The worker reads a sample from the PFS. A copy that stays is there when the read ends, one that makes
  /// room is gone now. Ignored when a later entry has been read before. Errors: as JobOrder::order().
  Status read_from_pfs(Holdings& holdings, const PfsRead& read);

  /// One copy for each sample, none of them there yet.
  static Holdings empty_holdings(uint64_t samples);

 private:
  Status advance_timeline(uint32_t epoch);
  Result<std::shared_ptr<const PlannedEpoch>> plan_epoch(uint32_t epoch);
  uint64_t& room(Tier tier) { return tier == Tier::ram ? space_.ram : space_.nvme; }

  std::unique_ptr<const ScenarioDataset> dataset_;
  JobOrder job_;
  TierSpace space_;
  NextUsePolicy policy_;
  std::deque<std::shared_ptr<const PlannedEpoch>> planned_;  // of the epoch being read and the next
  uint64_t next_position_ = 0;                               // all before were read
};

}  // namespace clairfs
