#include "plan/formats/source_reads.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "cache/base/mutex.h"

namespace clairfs {
namespace {

constexpr auto kReadPatience = std::chrono::minutes(1);

// Of a chunk of which so large a part is asked the rest is taken, too: it may be asked in the next breath,
// and one operation is as good as many.
constexpr uint64_t kWorthwhile = 4;

// Shared with the call-backs, which may come after the one who waits gave up. The bytes of a part are its
// fetch's alone until that is done.
struct Pieces {
  explicit Pieces(std::span<const ByteRange> pieces) {
    for (const ByteRange& piece : pieces) bytes.emplace_back(piece.length, '\0');
  }

  void begin() {
    MutexLock lock(mutex);
    ++missing;
  }
  void end(const Status& done) {
    MutexLock lock(mutex);
    --missing;
    if (!done && status) status = done;
    wake.notify_one();
  }

  std::vector<std::string> bytes;
  Mutex mutex;
  CondVar wake;
  size_t missing GUARDED_BY(mutex) = 0;
  Status status GUARDED_BY(mutex);
};

// Of a piece, as much as lies in one chunk.
struct Part {
  size_t piece;
  uint64_t at;  // where in the piece
  ByteRange range;
};

void fetch(ChunkSource& source, const std::shared_ptr<Pieces>& pieces, const Part& part) {
  FetchRequest request;
  request.file = part.range.file;
  request.offset = part.range.offset;
  request.length = part.range.length;
  request.memory = {{pieces->bytes[part.piece].data() + part.at, part.range.length}};
  request.demand = std::make_shared<Demand>(Priority{});
  request.scope = FetchScope::local_or_pfs;
  request.done = [pieces](const Fetched& origin) { pieces->end(origin ? Status() : origin.error()); };
  pieces->begin();
  source.start(std::move(request));
}

void copy(const AcquiredChunk& from, uint64_t chunk_offset, const Part& part, Pieces& to) {
  char* out = to.bytes[part.piece].data() + part.at;
  for (const iovec& slice : from.data->block.slices(part.range.offset - chunk_offset, part.range.length)) {
    std::memcpy(out, slice.iov_base, slice.iov_len);
    out += slice.iov_len;
  }
}

void acquire(ChunkCache& cache, const std::shared_ptr<Pieces>& pieces, ChunkId chunk, uint64_t chunk_offset,
             std::vector<Part> parts) {
  pieces->begin();
  cache.acquire(chunk, Priority{},
                [pieces, chunk_offset, parts = std::move(parts)](const Result<AcquiredChunk>& acquired) {
                  for (const Part& part : parts) {
                    if (acquired) copy(*acquired, chunk_offset, part, *pieces);
                  }
                  pieces->end(acquired ? Status() : acquired.error());
                });
}

std::map<ChunkId, std::vector<Part>> by_chunk(const Catalog& catalog, std::span<const ByteRange> pieces) {
  std::map<ChunkId, std::vector<Part>> chunks;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const ByteRange& piece = pieces[i];
    for (uint64_t at = 0; at < piece.length;) {
      const uint64_t offset = piece.offset + at;
      const uint64_t chunk_size = catalog.chunk_size(piece.file);
      const uint64_t rest = chunk_size - offset % chunk_size;
      const uint64_t length = std::min(piece.length - at, rest);
      chunks[catalog.chunk_at(piece.file, offset)].push_back({i, at, {piece.file, offset, length}});
      at += length;
    }
  }
  return chunks;
}

Result<std::vector<std::string>> await(const std::shared_ptr<Pieces>& pieces) {
  MutexLock lock(pieces->mutex);
  while (pieces->missing != 0) {
    const size_t before = pieces->missing;
    const auto woken = pieces->wake.wait_for(lock, kReadPatience);
    if (woken == std::cv_status::timeout && pieces->missing == before)
      return Error{ETIMEDOUT, "plan: the source does not answer"};
  }
  if (!pieces->status) return pieces->status.error();
  return std::move(pieces->bytes);
}

}  // namespace

Result<std::vector<std::string>> read_pieces(ChunkSource& source, std::span<const ByteRange> pieces) {
  const auto shared = std::make_shared<Pieces>(pieces);
  for (size_t i = 0; i < pieces.size(); ++i) fetch(source, shared, {i, 0, pieces[i]});
  return await(shared);
}

Result<std::vector<std::string>> read_pieces(ChunkCache& cache, const Catalog& catalog, ChunkSource& source,
                                             std::span<const ByteRange> pieces) {
  const auto shared = std::make_shared<Pieces>(pieces);
  for (auto& [chunk, parts] : by_chunk(catalog, pieces)) {
    const ChunkRange whole = catalog.range(chunk);
    uint64_t asked = 0;
    for (const Part& part : parts) asked += part.range.length;
    if (cache.tier_of(chunk) == Tier::ram || asked >= whole.length / kWorthwhile) {
      acquire(cache, shared, chunk, whole.offset, std::move(parts));
    } else {
      for (const Part& part : parts) fetch(source, shared, part);
    }
  }
  return await(shared);
}

}  // namespace clairfs
