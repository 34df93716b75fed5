// Policies that keep nothing: each reads the samples as they come. None changes the order.
#include "plan/simulator/policies/policies.h"

namespace clairfs {

// No worker ever waits for a sample: what no way of loading data can beat.
Result<Strategy> make_lower_bound(const PolicyInput&) {
  Strategy strategy;
  strategy.stalls = false;
  return strategy;
}

// Every sample is read from the PFS when it is needed.
Result<Strategy> make_naive(const PolicyInput&) {
  return Strategy();
}

// Double buffering, tf.data with prefetch: the staging buffer is filled from the PFS in the order of the
// reads.
Result<Strategy> make_staging(const PolicyInput&) {
  Strategy strategy;
  strategy.reads_ahead = true;
  return strategy;
}

}  // namespace clairfs
