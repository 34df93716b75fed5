#include "plan/tracking/interleaving.h"

#include <algorithm>
#include <map>
#include <set>
#include <vector>

namespace clairfs {
namespace {

constexpr uint32_t kMostBatch = 1 << 16;  // to bound the search; few loaders have a hundredth of it

// Opens for each of the workers that were seen, after which another one would mostly have begun.
constexpr size_t kOpensOfAll = 4;

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
  std::map<uint32_t, size_t> begun_at{{0, 0}};  // of each batch, by its number
  bool all_begun = false;                       // a worker has come to the end of its first batch
  for (size_t i = 0; i < positions.size() && !all_begun; ++i) {
    begun_at.try_emplace(positions[i] / batch, i);
    all_begun = positions[i] % batch == batch - 1;
  }
  uint32_t workers = 0;
  size_t newest = 0;
  for (auto at = begun_at.begin(); at != begun_at.end() && at->first == workers; ++at, ++workers)
    newest = std::max(newest, at->second);
  if (workers < 2 || !(all_begun || positions.size() - newest > kOpensOfAll * workers)) return std::nullopt;
  return Interleaving{batch, workers};
}

}  // namespace clairfs
