// Free runs of numbered units: what memory and disk space are handed out from.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>

namespace clairfs {

/// `count` units from number `first` on.
struct UnitRun {
  uint32_t first = 0;
  uint32_t count = 0;
  bool operator==(const UnitRun&) const = default;
};

/// Best fit, neighbours coalesced. Each call takes time in the logarithm of the runs. Not thread-safe.
class FreeRuns {
 public:
  /// No run crosses a multiple of `boundary`; 0: there is none.
  explicit FreeRuns(uint32_t boundary = 0) : boundary_(boundary) {}

  /// Gives units (back). REQUIRES: none of them is free now.
  void release(UnitRun run);
  /// The first `wanted` units of the smallest run that holds them; all of the largest if none does. REQUIRES:
  /// units() > 0.
  UnitRun take(uint32_t wanted);
  /// Whether `wanted` units are free in at most `most_runs` runs.
  bool fit(uint32_t wanted, size_t most_runs) const;

  uint64_t units() const { return units_; }
  size_t runs() const { return by_first_.size(); }

 private:
  void insert(UnitRun run);
  void erase(UnitRun run);

  const uint32_t boundary_;
  std::map<uint32_t, uint32_t> by_first_;             // first -> count
  std::set<std::pair<uint32_t, uint32_t>> by_count_;  // (count, first): equal sizes from low numbers up
  uint64_t units_ = 0;
};

}  // namespace clairfs
