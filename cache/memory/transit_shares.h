// TransitShares divides the transit memory, the fixed budget for chunks on their way, among kinds of fetches.
//
// A fetch that waits for another node holds its memory until that node answers. If that node needed memory
// which waits for a third node, all could stand still. So the shares of fetches that may wait for other nodes
// leave room for fetches that wait only for this node's PFS and NVMe, and every other node waits only for
// those.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cache/memory/ram_arena.h"

namespace clairfs {

/// All in bytes. Plain data, constant after construction.
class TransitShares {
  // In eighths: transit memory holds at least eight of the largest chunks, so that a share is never less than
  // one.
  static constexpr uint64_t kParts = 8;
  static constexpr uint64_t kStaging = 4;
  static constexpr uint64_t kOthers = 2;
  static constexpr uint64_t kNvmeWrites = 2;
  static constexpr uint64_t kNvmeReads = 1;
  static constexpr uint64_t kFromNvme = 4;
  static constexpr uint64_t kPrefill = 1;
  static constexpr uint64_t kLost = 1;

  static_assert(
      kStaging + kOthers + kNvmeReads < kParts,
      "a fetch from the PFS that another node waits for always finds memory (writes to NVMe give theirs "
      "back)");
  static_assert(kStaging + kNvmeWrites + kNvmeReads < kParts, "a reader never waits for the disk to write");
  static_assert(kFromNvme + kNvmeWrites + kNvmeReads < kParts,
                "a disk that hangs leaves memory to the source");
  static_assert(kPrefill + kNvmeWrites / 2 <= kNvmeWrites,
                "the disk takes all that home prefill reads while writes are not behind");
  static_assert(kLost < kOthers, "lost memory is noticed before fetches from other nodes have none left");

  constexpr uint64_t part(uint64_t eighths) const { return capacity / kParts * eighths; }

 public:
  explicit constexpr TransitShares(uint64_t transit_capacity) : capacity(transit_capacity) {}
  /// For a dataset with chunks of up to `chunk_size`: eight of them (so that transfers overlap), and at least
  /// 16 MiB (the READs of a few dozen readers).
  static TransitShares for_chunks(uint32_t chunk_size) {
    return TransitShares(std::max<uint64_t>(kParts * round_to_pages(chunk_size), 16ULL << 20));
  }

  const uint64_t capacity;
  /// Chunks that staging fetches, or has fetched and not pushed yet: it pushes in order.
  const uint64_t staging = part(kStaging);
  /// Fetches that may wait for other nodes.
  const uint64_t others = part(kOthers);
  /// Chunks that wait to be written to NVMe. When the disk is slower than the source, the rest has no claim
  /// to its memory (chunks/tiers.h).
  const uint64_t nvme_writes = part(kNvmeWrites);
  /// Reserved for reads from NVMe, so that a source that hangs does not block them.
  const uint64_t nvme_reads = part(kNvmeReads);
  /// Reads from NVMe that are under way. A read of a disk that hangs keeps its memory.
  const uint64_t from_nvme = part(kFromNvme);
  /// Chunks that home prefill reads for NVMe.
  const uint64_t prefill = part(kPrefill);
  /// Memory that a network did not give back. Above this the node asks others for nothing any more.
  const uint64_t lost = part(kLost);

  /// The most bytes that staging may hold while reads from NVMe that hang keep `hung` bytes. These, writes to
  /// that disk and staging together leave an eighth to a fetch that a reader waits for.
  constexpr uint64_t staging_beside(uint64_t hung) const {
    return std::min(staging, capacity - nvme_writes - part(1) - std::min(hung, from_nvme));
  }
  /// The bytes that are still reserved for reads from NVMe then. The hung reads have the others already.
  constexpr uint64_t nvme_reads_beside(uint64_t hung) const {
    return nvme_reads - std::min(hung, nvme_reads);
  }
};

}  // namespace clairfs
