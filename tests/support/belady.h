// The least that any cache can fetch, as a measure for ours.
#pragma once

#include <cstddef>
#include <cstdint>
#include <queue>
#include <unordered_map>
#include <utility>
#include <vector>

namespace clairfs {

struct LeastWork {
  uint64_t fetches = 0;
  uint64_t evictions = 0;  ///< of what had been kept; passing a file on at once is none
};

/// Belady's MIN with bypass over files of one size, in a cache that has room for so many of them: what is
/// used last leaves, and that may be the file just fetched. The fetches are the fewest there can be.
inline LeastWork least_work(const std::vector<uint32_t>& order, uint64_t room) {
  constexpr size_t kNever = SIZE_MAX;
  std::vector<size_t> next(order.size(), kNever);
  std::unordered_map<uint32_t, size_t> later;
  for (size_t i = order.size(); i-- > 0;) {
    if (const auto use = later.find(order[i]); use != later.end()) next[i] = use->second;
    later[order[i]] = i;
  }
  std::unordered_map<uint32_t, size_t> kept;                // -> next use
  std::priority_queue<std::pair<size_t, uint32_t>> latest;  // of these, and of some that have left
  LeastWork work;
  for (size_t i = 0; i < order.size(); ++i) {
    const bool hit = kept.erase(order[i]) > 0;
    if (!hit) ++work.fetches;
    if (next[i] == kNever) continue;
    kept[order[i]] = next[i];
    latest.emplace(next[i], order[i]);
    while (kept.size() > room) {
      const auto [use, file] = latest.top();
      latest.pop();
      const auto found = kept.find(file);
      if (found == kept.end() || found->second != use) continue;
      kept.erase(found);
      if (hit || file != order[i]) ++work.evictions;
    }
  }
  return work;
}

}  // namespace clairfs
