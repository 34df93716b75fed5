#include "plan/tracking/interleaving.h"

#include <algorithm>
#include <set>
#include <vector>

namespace clairfs {
namespace {

constexpr uint32_t kMostBatch = 1 << 16;  // to bound the search; few loaders have a hundredth of it

// Positions that are opened before their predecessors.
std::vector<uint32_t> beginnings(std::span<const uint32_t> positions, uint32_t opened) {
  std::vector<uint32_t> found;
  std::set<uint32_t> seen;
  for (const uint32_t position : positions) {
    if (position > opened && !seen.contains(position - 1)) found.push_back(position);
    seen.insert(position);
  }
  return found;
}

}  // namespace

uint32_t common_divisor(std::span<const uint32_t> numbers) {
  std::vector<uint32_t> sorted(numbers.begin(), numbers.end());
  std::sort(sorted.begin(), sorted.end());
  // More than one in five of them are not larger than this, and one of those is a multiple.
  const uint32_t most = std::min(kMostBatch, sorted[sorted.size() / 5]);
  for (uint32_t divisor = most; divisor > 1; --divisor) {
    const auto multiples =
        std::count_if(numbers.begin(), numbers.end(), [&](uint32_t n) { return n % divisor == 0; });
    if (5 * static_cast<size_t>(multiples) >= 4 * numbers.size()) return divisor;
  }
  return 1;
}

std::optional<Interleaving> find_interleaving(std::span<const uint32_t> positions, uint32_t opened) {
  const std::vector<uint32_t> begun = beginnings(positions, opened);
  if (begun.empty()) return std::nullopt;
  const uint32_t batch = common_divisor(begun);
  if (batch < 2 || opened >= batch) return std::nullopt;
  std::set<uint32_t> batches{0};
  for (const uint32_t position : positions) {
    batches.insert(position / batch);
    if (position % batch == batch - 1) break;
  }
  uint32_t workers = 0;
  while (batches.contains(workers)) ++workers;
  if (workers < 2) return std::nullopt;
  return Interleaving{batch, workers};
}

}  // namespace clairfs
