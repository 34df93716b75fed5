#include "net/peers/source_choice.h"

#include <algorithm>
#include <cmath>

namespace clairfs {
namespace {

// Fetches after which one counts half: enough to smooth what a scheduler does to single ones.
constexpr double kHalfLifeFetches = 8;
// Fetches that end within so many seconds count like one. Longer than a batch takes to be taken from the
// network.
constexpr double kOneFetchSeconds = 10e-3;
// Seconds after which a fetch counts half; see the header.
constexpr double kHalfLifeSeconds = 5;
// Worse than this is not told apart: one fetch that hung for half a minute must not weigh like a hundred slow
// ones.
constexpr double kWorstSeconds = 5;
// Weight of each of the two made-up fetches: little against one real one.
constexpr double kPriorWeight = 0.25;
// Bytes in front of the second made-up fetch: a full queue.
constexpr double kPriorBytes = 4U << 20;
// A path never counts as faster than this: memory.
constexpr double kLeastPerByte = 1e-11;

// Longer than a machine stands still that goes on.
constexpr auto kSlowFor = std::chrono::seconds(3);
// One slow fetch in so many seconds is what it costs to see that a path is well again.
constexpr auto kBetweenTrials = std::chrono::seconds(5);

}  // namespace

void LatencyModel::Sums::add(double weight, double px, double py) {
  n += weight;
  x += weight * px;
  y += weight * py;
  xx += weight * px * px;
  xy += weight * px * py;
}

void LatencyModel::Sums::scale(double by) {
  for (double* sum : {&n, &x, &y, &xx, &xy}) *sum *= by;
}

LatencyModel::LatencyModel(const Prior& prior) {
  prior_.add(kPriorWeight, 0, prior.latency);
  prior_.add(kPriorWeight, kPriorBytes, prior.latency + kPriorBytes / prior.bandwidth);
}

double LatencyModel::age(TimePoint now) const {
  return std::exp2(-std::max(0.0, in_seconds(now - last_)) / kHalfLifeSeconds);
}

void LatencyModel::completed(uint64_t bytes_in_front, Duration took, TimePoint now) {
  const double weight = std::clamp(in_seconds(now - last_) / kOneFetchSeconds, 0.0, 1.0);
  seen_.scale(age(now) * std::exp2(-weight / kHalfLifeFetches));
  seen_.add(weight, static_cast<double>(bytes_in_front), std::clamp(in_seconds(took), 0.0, kWorstSeconds));
  last_ = std::max(last_, now);
}

LatencyModel::Line LatencyModel::line(TimePoint now) const {
  Sums all = seen_;
  all.scale(age(now));
  for (const auto sum : {&Sums::n, &Sums::x, &Sums::y, &Sums::xx, &Sums::xy}) all.*sum += prior_.*sum;
  Line line;
  line.per_byte =
      std::max(kLeastPerByte, (all.n * all.xy - all.x * all.y) / (all.n * all.xx - all.x * all.x));
  line.latency = (all.y - line.per_byte * all.x) / all.n;
  if (line.latency < 0) {  // the best line through the origin
    line.latency = 0;
    line.per_byte = std::max(kLeastPerByte, all.xy / all.xx);
  }
  return line;
}

Duration LatencyModel::predict(uint64_t bytes_in_front, TimePoint now) const {
  const Line now_line = line(now);
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(
      now_line.latency + now_line.per_byte * static_cast<double>(bytes_in_front)));
}

double LatencyModel::bandwidth(TimePoint now) const {
  return 1 / line(now).per_byte;
}

void SlowPeerDetector::completed(Duration took, TimePoint now) {
  if (took <= slow_fetch_) {
    first_slow_.reset();
    return;
  }
  if (!first_slow_) first_slow_ = now;
  last_slow_ = now;
}

bool SlowPeerDetector::slow() const {
  return first_slow_ && last_slow_ - *first_slow_ > kSlowFor;
}

bool SlowPeerDetector::take_trial(TimePoint now) {
  if (now - std::max(last_trial_, last_slow_) < kBetweenTrials) return false;
  last_trial_ = now;
  return true;
}

std::optional<size_t> choose_source(std::span<const HolderPath> holders, Duration pfs,
                                    const FallbackRule& rule) {
  const auto best =
      std::min_element(holders.begin(), holders.end(),
                       [](const HolderPath& a, const HolderPath& b) { return a.predicted < b.predicted; });
  if (best == holders.end()) return std::nullopt;
  if (best->slow && in_seconds(best->predicted) > rule.factor * in_seconds(pfs)) return std::nullopt;
  return static_cast<size_t>(best - holders.begin());
}

}  // namespace clairfs
