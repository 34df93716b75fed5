// Counts how often a worker reads each sample over a job: thesis, section 3.2.1; Dryden et al., SC'21,
// section 3.
//
// With full randomisation a worker of N reads a sample in each of E epochs with probability 1/N, so that the
// number of its reads is binomial with mean E/N: though every sample is read E times, some are read much more
// often than E/N by one worker, and are worth keeping there.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/base/result.h"
#include "plan/simulator/scenario/scenario.h"

namespace clairfs {

/// P[X = k] for k = 0 ..= trials, X binomial.
std::vector<double> binomial_probabilities(uint32_t trials, double probability);

/// How many samples a worker reads how often. Index: number of reads.
struct AccessFrequencies {
  std::vector<double> counted;   ///< samples, of worker 0
  std::vector<double> binomial;  ///< samples that are to be expected
};

/// Of a scenario with uniform distribution; two bytes a sample. Errors: as JobOrder::make() and order().
Result<AccessFrequencies> count_access_frequencies(const Scenario& scenario, uint64_t samples);

}  // namespace clairfs
