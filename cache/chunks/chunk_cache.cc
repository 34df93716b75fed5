#include "cache/chunks/chunk_cache.h"

#include <chrono>
#include <thread>

namespace clairfs {

Result<std::unique_ptr<ChunkCache>> ChunkCache::create(const Deps& deps, uint64_t ram_capacity) {
  ram_capacity = ram_capacity / kPageSize * kPageSize;
  const TransitShares shares = TransitShares::for_chunks(deps.catalog.largest_chunk());
  auto ram_arena = RamArena::create(ram_capacity, kRamUnit);
  if (!ram_arena) return ram_arena.error();
  auto transit_arena = RamArena::create(shares.capacity);
  if (!transit_arena) return transit_arena.error();
  return std::unique_ptr<ChunkCache>(
      new ChunkCache(deps, std::move(*ram_arena), std::move(*transit_arena), ram_capacity, shares));
}

ChunkCache::ChunkCache(const Deps& deps, std::unique_ptr<RamArena> ram_arena,
                       std::unique_ptr<RamArena> transit_arena, uint64_t ram_capacity,
                       const TransitShares& shares)
    : catalog_(deps.catalog),
      table_(deps.catalog.chunk_count()),
      transit_(std::move(transit_arena), shares, !deps.stores.empty(), table_, deps.metrics, deps.log),
      tiers_({deps.catalog, deps.stores, deps.policy, table_, transit_, deps.metrics, deps.log},
             std::move(ram_arena), ram_capacity, shares.nvme_writes),
      fetcher_({deps.catalog, deps.source, table_, tiers_, transit_, deps.metrics},
               tiers_.adopt_warm_chunks() && deps.verify_warm_files, deps.nvme_patience, deps.most_in_parts) {
}

ChunkCache::~ChunkCache() {
  transit_.end();  // its thread uses the fetcher
  table_.clear();
}

void ChunkCache::acquire(ChunkId chunk, Priority priority, const AcquireDone& done, const Use& use) {
  if (ChunkRef data = resident(chunk)) return done(AcquiredChunk{std::move(data), Origin::ram, false, 0});
  (void)join_or_start(FetchScope::anywhere, chunk, {}, priority, done, use);
}

// As acquire(), but no more than the range is waited for.
void ChunkCache::acquire_part_of(FileId file, uint64_t offset, uint64_t length, Priority priority,
                                 const AcquireDone& done, const Use& use) {
  const ChunkId chunk = catalog_.chunk_at(file, offset);
  if (ChunkRef data = resident(chunk)) return done(AcquiredChunk{std::move(data), Origin::ram, false, 0});
  (void)join_or_start(FetchScope::anywhere, chunk, piece_of(file, offset, length), priority, done, use);
}

std::optional<FetchPtr> ChunkCache::acquire_within(FetchScope scope, ChunkId chunk, Priority priority,
                                                   const AcquireDone& done, const ChunkPiece& piece) {
  return join_or_start(scope, chunk, piece, priority, done, {});
}

std::optional<FetchPtr> ChunkCache::join_or_start(FetchScope scope, ChunkId chunk, const ChunkPiece& piece,
                                                  Priority priority, const AcquireDone& done,
                                                  const Use& use) {
  const ChunkRange range = catalog_.range(chunk);
  const bool may_wait = scope == FetchScope::anywhere && fetcher_.asks_others(range.file, range.offset);
  ChunkTable::Joined joined = table_.join(scope, chunk, piece, may_wait, priority, use, done);
  if (joined.data) {
    done(AcquiredChunk{std::move(joined.data), Origin::ram, false, 0});
    return FetchPtr();
  }
  if (!joined.fetch) return std::nullopt;
  if (joined.starts) fetcher_.start(joined.fetch);
  for (const auto& demand : joined.raised) fetcher_.demand_changed(*demand);
  return joined.fetch;
}

void ChunkCache::raise(const FetchPtr& fetch, Priority priority, const ChunkPiece& piece) {
  for (const auto& demand : table_.raise(fetch, piece, priority)) fetcher_.demand_changed(*demand);
}

// NVMe last: a fetch that has just answered a reader still hands over its chunk to be written, and the next
// mount would read it from the source again.
bool ChunkCache::stop(Duration patience) {
  // Polled: this happens once, and std::atomic::wait knows no deadline.
  const auto deadline = std::chrono::steady_clock::now() + patience;
  const auto comes_to_rest = [deadline](const auto& part) {
    while (!part.stopped()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
  };
  fetcher_.stop();
  const bool fetched = comes_to_rest(fetcher_);
  tiers_.stop();
  return comes_to_rest(tiers_) && fetched;
}

}  // namespace clairfs
