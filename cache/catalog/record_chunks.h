// RecordChunks cuts some files into smaller chunks than others: those whose name says that they hold records.
//
// A reader of records wants a part of a chunk at a time, in any order. With 38 records of 110 KB in each
// chunk of 4 MiB, nearly the whole file must have come before a hundredth of an epoch is read, and a tier
// that is full keeps chunks of which little is used soon. The best chunk is about as large as a record.
// Numbers of chunks are given out by the scan, which knows names and sizes but no records.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace clairfs {

/// Chunks are whole pages, so that no page belongs to two of them.
inline constexpr uint32_t kChunkUnit = 4096;

/// One --record-chunk.
struct RecordChunk {
  std::string pattern;  ///< as fnmatch(3) has it: of the name, or with a '/' of the path below the source
  uint32_t chunk = 0;   ///< bytes, a multiple of kChunkUnit
  bool operator==(const RecordChunk&) const = default;
};

/// Immutable after it was made, so thread-safe without locks.
class RecordChunks {
 public:
  /// The first wish that fits decides; files of no wish go by their name.
  explicit RecordChunks(std::vector<RecordChunk> wishes = {}) : wishes_(std::move(wishes)) {}

  /// The chunk wished for the file at `path` below the source; 0: none.
  uint32_t wished(std::string_view path) const;
  /// How the names of files end that are taken for files of records.
  static std::span<const std::string_view> endings();
  /// Whether a file of which nothing is wished holds many records, by name and size.
  static bool holds_records(std::string_view name, uint64_t size);
  /// The chunk of such files, which are `bytes` long together.
  static uint32_t usual(uint64_t bytes);

  bool empty() const { return wishes_.empty(); }
  /// The wishes as one text, different ones as different texts.
  std::string text() const;

 private:
  const std::vector<RecordChunk> wishes_;
};

}  // namespace clairfs
