// Ranges of a file: the chunks that they touch, or the bytes alone.
#include <algorithm>

#include "cache/chunks/chunk_cache.h"
#include "cache/io/memory.h"

namespace clairfs {
namespace {

// The largest READ that the kernel sends (256 pages). A chunk up to this size is worth fetching whole for a
// READ even when no tier keeps it: this READ and those that follow it will want nearly all of it.
constexpr uint64_t kLargestRead = 1 << 20;

// Then the whole costs hardly more, and others can join it.
bool is_nearly_all(uint64_t length, uint64_t of) {
  return 8 * (of - length) <= of;
}

}  // namespace

// Collects the pieces of one read; the last to arrive completes it.
struct ChunkCache::RangeRead {
  struct ChunkSlice {
    ChunkRef data;  // or
    std::string copy;
    uint64_t offset = 0;  // within the chunk
    uint64_t length = 0;
  };
  explicit RangeRead(const Tiers& cache_tiers) : tiers(cache_tiers) {}

  const Tiers& tiers;
  std::vector<ChunkSlice> pieces;
  std::atomic<size_t> missing{0};
  Mutex mutex;
  ReadView view GUARDED_BY(mutex);
  std::optional<Error> error GUARDED_BY(mutex);
  ReadDone done;

  void arrived(size_t i, Result<AcquiredChunk>& chunk) {
    {
      MutexLock lock(mutex);
      if (chunk) {
        pieces[i].offset -= chunk->start;
        hold(pieces[i], std::move(chunk->data));
        view.origin = std::max(view.origin, chunk->origin);
        view.joined = view.joined || chunk->joined;
      } else {
        error = chunk.error();
      }
    }
    if (missing.fetch_sub(1) != 1) return;
    ReadView out;
    std::optional<Error> failure;
    {
      MutexLock lock(mutex);
      out = std::move(view);
      failure = error;
    }
    if (failure) return done(*failure);
    for (ChunkSlice& piece : pieces) {
      if (piece.data) {
        for (const iovec& run : piece.data->block.slices(piece.offset, piece.length))
          out.memory.push_back(run);
        out.pins.push_back(std::move(piece.data));
      } else {
        out.copies.push_back(std::make_unique<std::string>(std::move(piece.copy)));
        out.memory.push_back({out.copies.back()->data(), out.copies.back()->size()});
      }
    }
    done(std::move(out));
  }

  // What is in transit is not pinned until the others come: they may be waiting for just that memory, and so
  // may those of other reads, each of which has a piece already.
  void hold(ChunkSlice& piece, ChunkRef data) const {
    if (missing.load() > 1 && !tiers.in_ram(data))
      piece.copy = joined(data->block.slices(piece.offset, piece.length));
    else
      piece.data = std::move(data);
  }
};

void ChunkCache::read(FileId file, uint64_t offset, uint64_t length, ReadDone done, const Use& use,
                      Neighbours neighbours) {
  const uint64_t chunk_size = catalog_.chunk_size(file);
  const uint64_t first = offset / chunk_size;
  const uint64_t last = (offset + length - 1) / chunk_size;
  // By far the most READs: there is nothing to collect.
  if (ChunkRef data = first == last ? resident(catalog_.chunk_at(file, offset)) : ChunkRef()) {
    ReadView view;
    view.memory = data->block.slices(offset - first * chunk_size, length);
    view.pins.push_back(std::move(data));
    return done(std::move(view));
  }
  auto job = std::make_shared<RangeRead>(tiers_);
  job->pieces.resize(last - first + 1);
  job->missing = job->pieces.size();
  job->done = std::move(done);
  for (uint64_t i = first; i <= last; ++i) {
    const uint64_t begin = std::max(offset, i * chunk_size);
    const uint64_t end = std::min(offset + length, (i + 1) * chunk_size);
    auto& piece = job->pieces[i - first];
    piece.offset = begin - i * chunk_size;
    piece.length = end - begin;
    acquire_piece(
        file, begin, end - begin,
        [job, i, first](Result<AcquiredChunk> chunk) { job->arrived(i - first, chunk); }, use, neighbours);
  }
}

void ChunkCache::acquire_piece(FileId file, uint64_t offset, uint64_t length, const AcquireDone& done,
                               const Use& use, Neighbours neighbours) {
  const Priority priority{Priority::Kind::demand, 0};
  if (neighbours == Neighbours::none) return acquire_range(file, offset, length, priority, done, use);
  const ChunkId chunk = catalog_.chunk_at(file, offset);
  if (catalog_.range(chunk).length <= kLargestRead)
    return acquire_part_of(file, offset, length, priority, done, use);
  acquire_or_pass(file, offset, length, priority, done, use);
}

void ChunkCache::acquire_range(FileId file, uint64_t offset, uint64_t length, Priority priority,
                               const AcquireDone& done, const Use& use) {
  const ChunkId chunk = catalog_.chunk_at(file, offset);
  if (is_nearly_all(length, catalog_.range(chunk).length))
    return acquire_part_of(file, offset, length, priority, done, use);
  acquire_or_pass(file, offset, length, priority, done, use);
}

uint64_t ChunkCache::bytes_acquired(FileId file, uint64_t offset, uint64_t length, const Use& use) const {
  const ChunkId chunk = catalog_.chunk_at(file, offset);
  const uint64_t all = catalog_.range(chunk).length;
  return is_nearly_all(length, all) || !passes(chunk, use) ? all : length;
}

// The chunk of a range, or, where no tier would keep it, just the bytes asked for.
void ChunkCache::acquire_or_pass(FileId file, uint64_t offset, uint64_t length, Priority priority,
                                 const AcquireDone& done, const Use& use) {
  const ChunkId chunk = catalog_.chunk_at(file, offset);
  if (!passes(chunk, use)) return acquire_part_of(file, offset, length, priority, done, use);
  fetcher_.read_range(file, offset, length, priority, done);
}

}  // namespace clairfs
