// Reads of a range of a file: the chunks that it touches, or the bytes alone.
#include <algorithm>

#include "cache/chunk_cache.h"

namespace clairfs {
namespace {

// The largest READ that the kernel sends (256 pages). A chunk up to this size is worth fetching whole even
// when no tier keeps it: one READ will want nearly all of it.
constexpr uint64_t kLargestRead = 1 << 20;

}  // namespace

// Collects the pieces of one read; the last to arrive completes it.
struct ChunkCache::RangeRead {
  struct Piece {
    ChunkRef data;
    uint64_t offset = 0;  // within the chunk
    uint64_t length = 0;
  };
  std::vector<Piece> pieces;
  std::atomic<size_t> missing{0};
  Mutex mutex;
  ReadView view GUARDED_BY(mutex);
  std::optional<Error> error GUARDED_BY(mutex);
  ReadDone done;

  void arrived(size_t i, Result<AcquiredChunk>& chunk) {
    {
      MutexLock lock(mutex);
      if (chunk) {
        pieces[i].data = std::move(chunk->data);
        pieces[i].offset -= chunk->start;
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
    for (Piece& piece : pieces) {
      for (const iovec& run : piece.data->block.slices(piece.offset, piece.length)) out.memory.push_back(run);
      out.pins.push_back(std::move(piece.data));
    }
    done(std::move(out));
  }
};

void ChunkCache::read(FileId file, uint64_t offset, uint64_t length, ReadDone done) {
  const Catalog::Chunks chunks = catalog_.chunks(file);
  const uint64_t chunk_size = catalog_.chunk_size();
  const uint64_t first = offset / chunk_size;
  const uint64_t last = (offset + length - 1) / chunk_size;
  auto job = std::make_shared<RangeRead>();
  job->pieces.resize(last - first + 1);
  job->missing = job->pieces.size();
  job->done = std::move(done);
  for (uint64_t i = first; i <= last; ++i) {
    const uint64_t begin = std::max(offset, i * chunk_size);
    const uint64_t end = std::min(offset + length, (i + 1) * chunk_size);
    auto& piece = job->pieces[i - first];
    piece.offset = begin - i * chunk_size;
    piece.length = end - begin;
    acquire_piece(file, ChunkId(chunks.first.value + static_cast<uint32_t>(i)), begin, end - begin,
                  [job, i, first](Result<AcquiredChunk> chunk) { job->arrived(i - first, chunk); });
  }
}

// A piece of a read: its chunk, or, where no tier would keep a large chunk, just the bytes asked for.
void ChunkCache::acquire_piece(FileId file, ChunkId chunk, uint64_t offset, uint64_t length,
                               const AcquireDone& done) {
  const ChunkRange range = catalog_.range(chunk);
  bool here = true;
  if (range.length > kLargestRead) {
    MutexLock lock(shard(chunk).mutex);
    const Slot& slot = slots_[chunk.index()];
    here = slot.data || slot.store != 0 || shard(chunk).flights.contains(chunk);
  }
  if (!here && !would_keep(chunk)) {
    const bool peers = asks_peers(file, range.offset);
    if (!read_through(file, offset, length, peers, done)) {
      park(Urgency{}, peers ? Way::peer : Way::source,
           {std::nullopt, [=, this] { return read_through(file, offset, length, peers, done); }});
    }
    return;
  }
  acquire(chunk, Urgency{Urgency::Kind::reader, 0}, done);
}

bool ChunkCache::read_through(FileId file, uint64_t offset, uint64_t length, bool peers,
                              const AcquireDone& done) {
  if (stopping_.load()) {
    done(Error{ECANCELED, "the mount is being shut down"});
    return true;
  }
  auto block = reserve_transit(length, peers ? Way::peer : Way::source);
  if (!block) return false;
  outstanding_.fetch_add(1);
  const ChunkRef data(new ChunkData(std::move(*block), static_cast<uint32_t>(length), *this));
  FetchRequest request;
  request.file = file;
  request.offset = offset;
  request.length = length;
  request.memory = data->block.slices(0, length);
  request.no_peers = !peers;
  request.done = [=, this, held = data](const Result<Origin>& outcome) mutable {
    if (peers) {
      peer_transit_.fetch_sub(held->block.capacity());
      memory_released();
    }
    if (outcome) {
      done(AcquiredChunk{held, *outcome, false, offset % catalog_.chunk_size()});
    } else if (outcome.error().code == kMemoryLost) {
      lose(held);
      if (!read_through(file, offset, length, false, done))
        park(Urgency{}, Way::source,
             {std::nullopt, [=, this] { return read_through(file, offset, length, false, done); }});
    } else {
      done(outcome.error());
    }
    operation_ended(std::move(held));
  };
  source_.fetch(std::move(request));
  return true;
}

}  // namespace clairfs
