// A policy's decisions as data, which the simulation interprets.
//
// A policy looks at the whole job before it starts and says which samples are loaded beforehand, which
// workers keep which, from where the staging buffer is filled, and how the order of reads is changed, if it
// is.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "cache/base/result.h"
#include "plan/simulator/model/job_order.h"
#include "plan/simulator/model/performance_model.h"
#include "plan/simulator/policies/holdings.h"
#include "plan/simulator/scenario/scenario.h"

namespace clairfs {

/// From where a sample is read.
enum class Source : uint8_t { pfs, peer, local };
inline constexpr size_t kSources = 3;
/// By Source.
using BySource = std::array<double, kSources>;

/// Samples that a worker reads from the PFS to keep them, in this order, while the training runs.
struct FillQueue {
  uint32_t worker = 0;
  uint32_t threads = 1;
  std::vector<uint32_t> samples;  ///< each with a holding of the worker
};

/// A read from the PFS: entry k of the worker's sequence in an epoch.
struct PfsRead {
  uint32_t epoch = 0;
  uint64_t k = 0;
  uint32_t sample = 0;
  double end = 0;  ///< seconds since the start: when it is there
};
/// Told of a read when it is worked out, which is in the order of the worker's sequence; may change the
/// holdings.
using OnPfsRead = std::function<Status(Holdings& holdings, const PfsRead& read)>;

struct Strategy {
  bool stalls = true;             ///< false: every sample is there when it is asked for
  bool reads_ahead = false;       ///< the staging buffer is filled in the order of the reads
  bool ahead_from_pfs = true;     ///< ... also from the PFS; else unkept samples are read when needed
  bool ahead_from_peers = false;  ///< ... also from other workers
  /// A sample that a worker keeps is read from the PFS by that worker alone, once; others that need it wait
  /// for it.
  bool single_read = false;

  double preparation = 0;  ///< seconds before the training starts
  BySource prepared_mb{};  ///< read meanwhile, by all workers
  Holdings holdings;
  std::optional<uint8_t>
      everywhere;  ///< whatever a worker asks for it has in this class; spares the holdings
  std::vector<FillQueue> fills;
  Reorder reorder;        ///< empty: the order is kept
  OnPfsRead on_pfs_read;  ///< empty: what is kept does not depend on what was read
};

/// The job as a policy sees it. All of it outlives the strategy's making.
struct PolicyInput {
  const Scenario& scenario;
  const std::vector<float>& sizes;  ///< MB by sample
  const PerformanceModel& model;
  JobOrder& order;
};

}  // namespace clairfs
