#include "cache/catalog/scan_pace.h"

#include <algorithm>

#include "cache/tasks/doubling.h"

namespace clairfs {
namespace {

// Long enough for some hundred answers of 1 ms each, short enough that 64 threads run after half a second.
constexpr auto kPeriod = std::chrono::milliseconds(80);

// The shortest way to a server and back. A look at what is in this machine's memory takes some ten
// microseconds, none of which is a wait.
constexpr auto kAnswer = std::chrono::microseconds(100);

}  // namespace

ScanThreads widened(ScanThreads threads, const ScanProbe& probe) {
  const bool waits = probe.looks > 0 && probe.passed - probe.computing >= probe.looks * kAnswer;
  if (waits) threads.first = std::max(threads.first, threads.most);
  return threads;
}

void ScanPace::observe(uint64_t done, TimePoint now) {
  const Duration passed = now - since_;
  if (begun_ && passed < kPeriod) return;
  if (begun_ && growing_) {
    const double rate = static_cast<double>(done - done_) / in_seconds(passed);
    growing_ = threads_ < most_ && rate >= kDoublingPays * last_rate_;
    if (growing_) threads_ = std::min(2 * threads_, most_);
    last_rate_ = rate;
  }
  begun_ = true;
  done_ = done;
  since_ = now;
}

}  // namespace clairfs
