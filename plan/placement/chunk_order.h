// Orders of chunks that placement works in: by a small number, in linear time, and scattered among equals.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "cache/base/types.h"

namespace clairfs {

/// The chunks by descending key(chunk), an integer; equals in the order in which they came.
template <class Key>
std::vector<ChunkId> by_descending(const std::vector<ChunkId>& chunks, Key&& key) {
  uint64_t most = 0;
  for (const ChunkId chunk : chunks) most = std::max<uint64_t>(most, key(chunk));
  std::vector<ChunkId> sorted(chunks);
  // Counting takes memory and time in the order of the largest key.
  if (most > chunks.size()) {
    std::stable_sort(sorted.begin(), sorted.end(), [&](ChunkId a, ChunkId b) { return key(a) > key(b); });
    return sorted;
  }
  std::vector<uint32_t> places(most + 2);
  for (const ChunkId chunk : chunks) ++places[most - key(chunk) + 1];
  std::partial_sum(places.begin(), places.end(), places.begin());
  for (const ChunkId chunk : chunks) sorted[places[most - key(chunk)]++] = chunk;
  return sorted;
}

/// Calls `visit(range)` for each run of chunks with the same key.
template <class Key, class Visit>
void for_each_run(std::span<const ChunkId> chunks, Key&& key, Visit&& visit) {
  while (!chunks.empty()) {
    const auto wanted = key(chunks.front());
    const auto end = std::find_if(chunks.begin(), chunks.end(), [&](ChunkId c) { return key(c) != wanted; });
    const auto length = static_cast<size_t>(end - chunks.begin());
    visit(chunks.first(length));
    chunks = chunks.subspan(length);
  }
}

/// Calls `visit(chunk)` for each, in steps of the golden ratio: those visited first are spread evenly over
/// all (Fibonacci hashing; D. Knuth, The Art of Computer Programming, vol. 3, section 6.4). So whatever part
/// of equals a node gets, it is no region of the dataset. Ends early when `visit` returns false.
template <class Visit>
void for_each_scattered(std::span<const ChunkId> chunks, Visit&& visit) {
  const uint64_t count = chunks.size();
  uint64_t step = count * 618 / 1000 + 1;
  while (std::gcd(step, count) > 1) ++step;
  uint64_t at = 0;
  for (uint64_t i = 0; i < count; ++i, at = (at + step) % count) {
    if (!visit(chunks[at])) return;
  }
}

}  // namespace clairfs
