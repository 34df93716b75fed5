// Fetcher carries fetches on: it reserves memory, takes the chunk from NVMe or from the source, and answers
// the waiters.
//
//   start() -> begin() -> NVMe: read --------------------------------------------------> finish()
//                 |         |   not there any more                                           |
//                 |         +-> source (the PFS, or another node) --------------------------+
//                 +-> on NVMe, and the file was not compared yet: that, and begin() again
//                 +-> no memory: TransitQueue, and begin() again
//                 +-> source, in parts: finish_part() of each, and finish() with the last
//
// Each step runs on the thread that completed the one before. After a wait for memory that is the thread
// "transit", and after a read that was given up "nvme-watch". A fetch of a range of a file that no tier would
// keep (read_range()) goes the same way, without a chunk.
//
// A read that NVMe does not answer in time is given up, for a disk may hang as a source may: the fetch begins
// again, with other memory, and the read keeps its own until it ends. As long as such a read is under way,
// the chunks of its store come from the source, and so do those of another store if there is no memory left
// to read them from there.
//
// A chunk that goes from the PFS to the RAM tier may come in parts. The fetch then makes a request of its own
// for the bytes that readers will need soon. The source reads the rest when it has nothing else to do, or
// when a reader needs it. Else the first epoch of shuffled records would read its neighbours' parts ahead of
// their turn. One that is to go to NVMe, which takes whole chunks, goes to RAM for this, in the place of one
// that NVMe has a copy of. These chunks come whole: those in transit memory, which must not stay there for
// long; the only one of a file, since the source opens the file for each part; and any while many others come
// in parts.
//
// Fetches that may wait for other nodes have a share of the transit memory, and each class of fetches has its
// own queues. A request of another node never joins a fetch that waits for a node, so nodes never wait for
// each other in a circle.
//
// Thread-safe; it has no locks.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "cache/base/clock.h"
#include "cache/base/metrics.h"
#include "cache/catalog/catalog.h"
#include "cache/chunks/chunk_table.h"
#include "cache/chunks/fetch.h"
#include "cache/chunks/tiers.h"
#include "cache/chunks/transit_pool.h"
#include "cache/source/source.h"
#include "cache/tasks/overdue.h"

namespace clairfs {

class Fetcher {
 public:
  /// All outlive it.
  struct Deps {
    const Catalog& catalog;
    ChunkSource& source;
    ChunkTable& table;
    Tiers& tiers;
    TransitPool& transit;
    Metrics& metrics;
  };

  /// `verify_warm_files`, `nvme_patience`, `most_in_parts`: see ChunkCache::Deps.
  Fetcher(const Deps& deps, bool verify_warm_files, Duration nvme_patience, size_t most_in_parts);

  /// Begins a fetch that is new (ChunkTable::Joined::starts).
  void start(const FetchPtr& fetch);
  /// The demand of a fetch, or of a part of one, was raised.
  void demand_changed(const Demand& demand);
  /// See ChunkSource.
  void gather() { deps_.source.gather(); }
  void gathered() { deps_.source.gathered(); }
  /// Reads bytes [offset, offset + length) of a file, within one chunk, and forgets them afterwards.
  void read_range(FileId file, uint64_t offset, uint64_t length, Priority priority, const AcquireDone& done);
  /// Whether a fetch of the chunk of `file` at `offset` would be asked of another node now.
  bool asks_others(FileId file, uint64_t offset) const;
  /// Whether the source compares the file before NVMe gives what it has of it: see ChunkCache::Deps.
  bool must_verify(FileId file) const;

  /// Fetches that wait and those that come later fail with ECANCELED.
  void stop();
  /// After stop(): nothing is under way.
  bool stopped() const { return under_way_.load() == 0 && deps_.transit.nobody_waits(); }

 private:
  struct Range;
  struct NvmeRead;

  std::optional<TransitClass> begin(const FetchPtr& fetch);
  void begin_again(const FetchPtr& fetch);
  void verify(const FetchPtr& fetch);
  void fetch_from_nvme(const FetchPtr& fetch);
  bool any_hangs() const;
  void give_up(NvmeRead& read);
  void read_ended(NvmeRead& read, const Status& status);
  void fetch_without_nvme(const FetchPtr& fetch);
  void fetch_from_source(const FetchPtr& fetch);
  bool may_split(FileId file) const;
  bool fetch_in_parts(const FetchPtr& fetch);
  void finish_part(const FetchPtr& fetch, FetchPart& part, const Fetched& outcome);
  void promise_room(Fetch& fetch, bool on_nvme, const Use& use);
  void place_for_parts(Fetch& fetch) const;
  void take_back(Fetch& fetch);
  ChunkRef move_to_ram(Fetch& fetch, ChunkRef data);
  void finish(const FetchPtr& fetch, const Fetched& outcome);
  void publish(const Fetch& fetch, const ChunkRef& data, Origin origin);
  void fail(const Fetch& fetch, const Error& error);
  void ended(ChunkRef data);

  void start_range(const std::shared_ptr<Range>& range);
  std::optional<TransitClass> begin_range(const std::shared_ptr<Range>& range);
  void finish_range(const std::shared_ptr<Range>& range, const Fetched& outcome);

  const Deps deps_;
  const size_t most_in_parts_;
  std::vector<std::atomic<bool>> unverified_;    // by FileId; empty when every file was looked at
  std::vector<std::atomic<uint32_t>> given_up_;  // by store: reads that are under way and were given up
  std::atomic<uint64_t> under_way_{0};           // transfers
  std::atomic<size_t> in_parts_{0};              // fetches
  std::atomic<bool> stopping_{false};
  std::optional<OverdueThread> nvme_watch_;  // last: uses the others; none without stores
};

}  // namespace clairfs
