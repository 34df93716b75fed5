// What NoPFS keeps where: the yardstick for placement.
//
// As libhdmlp's Sampler::get_prefetch_string() does it (spcl/NoPFS, branch old-nopfs): each worker by itself
// sorts the samples that it accesses by its own frequency of access over the job and fills its storage
// classes with them, fastest first; a class ends with the first sample that does not fit it. A sample that is
// not held locally comes from a worker that holds it, else from the PFS.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "cache/memory/ram_arena.h"
#include "plan/placement/job_uses.h"
#include "plan/placement/table.h"

namespace clairfs {

/// By rank and chunk: whether the worker holds it. Chunks take their length rounded up to pages.
inline std::vector<std::vector<bool>> nopfs_holders(const Catalog& catalog, const JobUses& uses,
                                                    std::span<const NodeCapacity> capacities) {
  std::vector<std::vector<bool>> holds;
  for (uint32_t node = 0; node < capacities.size(); ++node) {
    const std::vector<uint32_t> frequency = uses.uses_of(NodeId(node));
    std::vector<uint32_t> order;
    for (uint32_t c = 0; c < frequency.size(); ++c) {
      if (frequency[c] > 0) order.push_back(c);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](uint32_t a, uint32_t b) { return frequency[a] > frequency[b]; });
    auto& held = holds.emplace_back(frequency.size());
    const uint64_t classes[] = {capacities[node].ram, capacities[node].nvme};
    size_t storage_class = 0;
    uint64_t used = 0;
    for (const uint32_t c : order) {
      const uint64_t bytes = round_to_pages(catalog.range(ChunkId(c)).length);
      while (storage_class < 2 && used + bytes > classes[storage_class]) {
        ++storage_class;
        used = 0;
      }
      if (storage_class == 2) break;
      held[c] = true;
      used += bytes;
    }
  }
  return holds;
}

/// What a set of holders is worth over the uses that were counted, in uses of chunks and in bytes.
struct HoldersWorth {
  uint64_t local = 0;       ///< uses on a node that holds the chunk
  uint64_t local_once = 0;  ///< likewise, of a chunk's holders only the one that uses it most
  uint64_t local_bytes = 0;
  uint64_t local_once_bytes = 0;
  uint64_t pfs_reads = 0;  ///< one for a chunk that is held, else one for each use
  uint64_t pfs_bytes = 0;
  uint64_t held = 0;  ///< chunks with a holder
};

/// `holds(chunk, node)`.
template <class Holds>
HoldersWorth worth_of(const Catalog& catalog, const JobUses& uses, Holds&& holds) {
  HoldersWorth worth;
  for (uint32_t c = 0; c < uses.chunks(); ++c) {
    const ChunkId chunk(c);
    const uint64_t length = catalog.range(chunk).length;
    bool held = false;
    uint64_t most = 0;
    for (uint32_t node = 0; node < uses.nodes(); ++node) {
      if (!holds(chunk, NodeId(node))) continue;
      const uint64_t count = uses.uses(chunk, NodeId(node));
      held = true;
      most = std::max(most, count);
      worth.local += count;
      worth.local_bytes += count * length;
    }
    const uint64_t reads = held ? std::min(uses.total(chunk), 1U) : uses.total(chunk);
    worth.held += held ? 1 : 0;
    worth.local_once += most;
    worth.local_once_bytes += most * length;
    worth.pfs_reads += reads;
    worth.pfs_bytes += reads * length;
  }
  return worth;
}

}  // namespace clairfs
