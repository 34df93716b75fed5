#include "cache/base/free_runs.h"

#include <algorithm>
#include <iterator>

namespace clairfs {

void FreeRuns::insert(UnitRun run) {
  by_first_.emplace(run.first, run.count);
  by_count_.emplace(run.count, run.first);
  units_ += run.count;
}

void FreeRuns::erase(UnitRun run) {
  by_first_.erase(run.first);
  by_count_.erase({run.count, run.first});
  units_ -= run.count;
}

void FreeRuns::release(UnitRun extent) {
  const auto meets = [this](uint32_t unit) { return boundary_ == 0 || unit % boundary_ != 0; };
  const auto next = by_first_.lower_bound(extent.first);
  if (next != by_first_.begin() && meets(extent.first)) {
    const auto [first, count] = *std::prev(next);
    if (first + count == extent.first) {
      erase({first, count});
      extent = {first, count + extent.count};
    }
  }
  if (next != by_first_.end() && next->first == extent.first + extent.count && meets(next->first)) {
    const auto [first, count] = *next;
    erase({first, count});
    extent.count += count;
  }
  insert(extent);
}

UnitRun FreeRuns::take(uint32_t wanted) {
  auto fits = by_count_.lower_bound({wanted, 0});
  if (fits == by_count_.end()) fits = std::prev(fits);
  const auto [count, first] = *fits;
  erase({first, count});
  if (count > wanted) insert({first + wanted, count - wanted});
  return {first, std::min(count, wanted)};
}

bool FreeRuns::fit(uint32_t wanted, size_t most_runs) const {
  uint64_t found = 0;
  for (auto run = by_count_.rbegin(); run != by_count_.rend() && found < wanted && most_runs > 0;
       ++run, --most_runs)
    found += run->first;
  return found >= wanted;
}

}  // namespace clairfs
