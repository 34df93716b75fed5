// PerformanceModel says how long a read takes, by the equations of R. Boehringer, "Clairvoyant Prefetching
// for Machine Learning I/O" (thesis, ETH Zurich 2020; HDMLP), section 3.1, and Dryden et al., SC'21 (NoPFS),
// section 4, in their symbols.
//
//   t(i,f) = max(avail(f), t(i,f-1) + s/c)   worker i consumes entry f of its sequence;
//                                            a barrier ends a batch
//   avail  = sum of read / p0                p0 threads fill the staging buffer
//   read   = fetch + write
//   write  = max(s/beta, s p0/w0(p0))
//   fetch  = s/min(b_fs, t(g)/g)             from the PFS, which g workers read
//            s/min(b_c, r_j(p_j)/p_j)        from storage class j of another worker
//            s/(r_j(p_j)/p_j)                from an own one
//
// The published simulator differs from the equations, and a scenario says which it wants ([model]):
//   reads = "undivided"   it divides w0 by p0 as above, but reads class j at the whole r_j(p_j), whichever
//                         number of threads reads; "divided" is as in the equations
//   pfs = "per-thread"    it gives each thread of a reading worker the worker's whole t(g)/g, so that p
//                         threads get p times what the filesystem has; so do the equations, since avail
//                         divides the sum by p0. "per-worker" shares t(g)/g among the threads of a worker
//                         that read. "per-reader" takes g, also of the table, to be the threads of all
//                         workers that read: that is what one node can measure
//   fills = "processed"   it charges every read that fills class j with `write`, preprocessing included;
//                         "raw" charges s p_j/w_j(p_j) where w_j is given
//   computing             "per-sample" is the first equation; see simulation.h
// In which order it works out the reads, and so how it counts g: simulation.h.
//
// Latencies are ours: seconds that a read takes beside its bytes, 0 in the published scenarios.
#pragma once

#include <cstdint>

#include "plan/simulator/scenario/scenario.h"

namespace clairfs {

/// The readers of the PFS while a read goes on, that read included.
struct PfsLoad {
  uint32_t workers = 1;      ///< that read
  uint32_t own_threads = 1;  ///< of the worker whose read it is
  uint32_t threads = 1;      ///< of all workers
};

/// All workers read, each with that many threads.
inline PfsLoad everybody_reads(const Scenario& scenario, uint32_t threads) {
  return {scenario.workers, threads, scenario.workers * threads};
}

/// Seconds, from MB. Immutable after it was made, so thread-safe without locks; `scenario` outlives it.
class PerformanceModel {
 public:
  explicit PerformanceModel(const Scenario& scenario);

  double compute(double mb) const { return mb / scenario_.compute; }
  /// Preprocessing and writing to the staging buffer.
  double write(double mb) const { return mb * write_; }
  double fetch_pfs(double mb, const PfsLoad& load) const;
  /// `storage`: number in Scenario::classes.
  double fetch_peer(double mb, uint32_t storage) const;
  double fetch_local(double mb, uint32_t storage) const;
  /// Putting a fetched sample into a class.
  double fill(double mb, uint32_t storage) const { return mb * classes_[storage].fill; }

 private:
  struct Class {
    double latency = 0;
    double local = 0;  // seconds a MB
    double peer = 0;
    double fill = 0;
  };

  const Scenario& scenario_;
  double write_ = 0;  // seconds a MB
  std::vector<Class> classes_;
};

}  // namespace clairfs
