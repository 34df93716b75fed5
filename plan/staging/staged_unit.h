// StagedUnit: the bytes that staging fetches, pins and pushes at a time. InFlight: their memory meanwhile.
// For staging's own sources only.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cache/base/mutex.h"
#include "cache/base/types.h"
#include "cache/memory/chunk_data.h"
#include "cache/memory/ram_arena.h"
#include "cache/tasks/alarm.h"
#include "plan/formats/samples/sample_index.h"
#include "plan/staging/page_ledger.h"

namespace clairfs {

struct StagedPlan;

/// The bytes of page cache that a sample takes, at most: with the pages pushed behind it for readers that go
/// on.
inline uint64_t page_bytes(const SampleIndex& index, uint32_t sample) {
  uint64_t bytes = 0;
  for (uint32_t piece = 0; piece < index.range_count(sample); ++piece) {
    const ByteRange range = index.range(sample, piece);
    if (range.length > 0) bytes += round_to_pages(index.read_end(range)) - page_floor(range.offset);
  }
  return bytes;
}

/// The state that completions of fetches reach, also after the end of Staging.
struct StagingShared {
  Alarm alarm;
  Mutex mutex;  // comes before those of trackers
  std::map<std::string, std::shared_ptr<StagedPlan>> plans GUARDED_BY(mutex);
  std::vector<std::shared_ptr<StagedPlan>> removed GUARDED_BY(mutex);  // step() has yet to forget them
  std::atomic<uint64_t> in_flight_bytes{0};
  std::atomic<uint64_t> fill_bytes{0};
};

/// Memory of a fetch that staging has asked for. It counts from then on until the last unit of the fetch is
/// gone.
struct InFlight {
  InFlight(std::shared_ptr<StagingShared> counted_in, uint64_t size)
      : shared(std::move(counted_in)), bytes(size) {
    shared->in_flight_bytes.fetch_add(bytes);
  }
  ~InFlight() {
    shared->in_flight_bytes.fetch_sub(bytes);
    shared->alarm.ring();  // memory to fetch with has come free
  }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;

  const std::shared_ptr<StagingShared> shared;
  const uint64_t bytes;
};

/// The part of a sample that lies in one chunk. A sample without bytes, one that is not to be pushed, or one
/// that comes with those before it, is one unit without a chunk.
struct StagedUnit {
  StagedUnit(uint64_t of_position, std::shared_ptr<StagingShared> counted_in)
      : position(of_position), shared(std::move(counted_in)) {}

  /// The same, not asked for yet.
  std::shared_ptr<StagedUnit> anew() const {
    auto unit = std::make_shared<StagedUnit>(position, shared);
    unit->chunk = chunk;
    unit->file = file;
    unit->begin = begin;
    unit->needs_from = needs_from;
    unit->end = end;
    unit->first = first;
    unit->last = last;
    unit->covered = covered;
    return unit;
  }

  const uint64_t position;
  const std::shared_ptr<StagingShared> shared;
  std::optional<ChunkId> chunk;
  FileId file;
  uint64_t begin = 0;       // of the file; whole pages, or up to its end
  uint64_t needs_from = 0;  // the pages from there to `begin` come with those before it
  uint64_t end = 0;
  bool first = true;     // of its sample
  bool last = true;      // of its sample
  bool covered = false;  // those before it bring its bytes
  ChunkRef data;         // written by the completion, before `arrived`
  uint64_t start = 0;    // where in the chunk `data` begins; written with it
  std::atomic<bool> arrived{false};
  bool failed = false;
  std::shared_ptr<InFlight> in_flight;  // from the fetch to the push
};

}  // namespace clairfs
