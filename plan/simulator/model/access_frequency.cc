#include "plan/simulator/model/access_frequency.h"

#include <cmath>

#include "plan/simulator/model/job_order.h"

namespace clairfs {

std::vector<double> binomial_probabilities(uint32_t trials, double probability) {
  std::vector<double> probabilities(trials + 1, 0);
  if (probability <= 0 || probability >= 1) {
    probabilities[probability <= 0 ? 0 : trials] = 1;
    return probabilities;
  }
  // By logarithms: the factors of a large job are beyond what a double holds.
  const double n = trials;
  for (uint32_t k = 0; k <= trials; ++k) {
    const double choose = std::lgamma(n + 1) - std::lgamma(k + 1.0) - std::lgamma(n - k + 1);
    probabilities[k] = std::exp(choose + k * std::log(probability) + (n - k) * std::log1p(-probability));
  }
  return probabilities;
}

Result<AccessFrequencies> count_access_frequencies(const Scenario& scenario, uint64_t samples) {
  auto job = JobOrder::make(scenario, samples);
  if (!job) return job.error();
  const WorkerShare& share = job->share(0);
  std::vector<uint16_t> reads(samples);
  for (uint32_t epoch = 0; epoch < job->epochs(); ++epoch) {
    const auto order = job->order(epoch);
    if (!order) return order.error();
    for (uint64_t k = 0; k < share.count(); ++k) {
      uint16_t& number = reads[share.sample(*order, k)];
      if (number < UINT16_MAX) ++number;
    }
  }
  AccessFrequencies frequencies;
  frequencies.counted.resize(job->epochs() + 1);
  for (const uint16_t number : reads) {
    if (number >= frequencies.counted.size()) frequencies.counted.resize(number + 1);
    ++frequencies.counted[number];
  }
  const double probability = static_cast<double>(share.count()) / static_cast<double>(samples);
  frequencies.binomial = binomial_probabilities(job->epochs(), std::min(probability, 1.0));
  for (double& expected : frequencies.binomial) expected *= static_cast<double>(samples);
  frequencies.binomial.resize(frequencies.counted.size());
  return frequencies;
}

}  // namespace clairfs
