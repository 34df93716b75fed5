#include "cache/nvme/space.h"

#include <algorithm>

namespace clairfs {

void NvmeSpace::insert(Extent run) {
  by_address_.emplace(run.first, run.count);
  by_size_.emplace(run.count, run.first);
  free_slots_ += run.count;
}

void NvmeSpace::erase(Extent run) {
  by_address_.erase(run.first);
  by_size_.erase({run.count, run.first});
  free_slots_ -= run.count;
}

/// The first `slots` of the free run.
Extent NvmeSpace::take(Extent run, uint32_t slots) {
  erase(run);
  if (run.count > slots) insert({run.first + slots, run.count - slots});
  return {run.first, slots};
}

void NvmeSpace::release(Extent extent) {
  const auto next = by_address_.find(extent.first + extent.count);
  if (next != by_address_.end() && next->first % segment_slots_ != 0) {
    const Extent run{next->first, next->second};
    erase(run);
    extent.count += run.count;
  }
  auto previous = by_address_.lower_bound(extent.first);
  if (previous != by_address_.begin() && extent.first % segment_slots_ != 0) {
    --previous;
    const Extent run{previous->first, previous->second};
    if (run.first + run.count == extent.first) {
      erase(run);
      extent = {run.first, run.count + extent.count};
    }
  }
  insert(extent);
}

std::vector<Extent> NvmeSpace::allocate_run(uint32_t slots) {
  const auto fit = by_size_.lower_bound({slots, 0});
  if (fit == by_size_.end()) return {};
  return {take({fit->second, fit->first}, slots)};
}

std::vector<Extent> NvmeSpace::allocate_runs(uint32_t slots, size_t max_extents) {
  uint64_t enough = 0;
  size_t needed = 0;
  for (auto run = by_size_.rbegin(); run != by_size_.rend() && enough < slots && needed < max_extents;
       ++run) {
    enough += run->first;
    ++needed;
  }
  if (enough < slots) return {};
  std::vector<Extent> extents;
  while (slots > 0) {
    // The largest, and for what is left at last the smallest that holds it: else a large one is cut for
    // nothing.
    const auto fit = by_size_.lower_bound({slots, 0});
    const auto [count, first] = fit != by_size_.end() ? *fit : *by_size_.rbegin();
    extents.push_back(take({first, count}, std::min(count, slots)));
    slots -= extents.back().count;
  }
  return extents;
}

}  // namespace clairfs
